package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime is datetime.strftime of a time without a zone, as CPython does it
// on Linux in the C locale.
func strftime(t time.Time, format string) (string, error) {
	var sb strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 >= len(format) {
			sb.WriteByte(format[i])
			continue
		}
		i++
		pad := byte(0)
		if (format[i] == '-' || format[i] == '_' || format[i] == '0') && i+1 < len(format) {
			pad = format[i] // glibc's flags: no padding, spaces, zeros
			i++
		}
		number := func(n, width int) {
			switch pad {
			case '-':
				fmt.Fprintf(&sb, "%d", n)
			case '_':
				fmt.Fprintf(&sb, "%*d", width, n)
			default:
				fmt.Fprintf(&sb, "%0*d", width, n)
			}
		}
		spaced := func(n, width int) {
			if pad == 0 {
				pad = '_'
			}
			number(n, width)
		}
		hour12 := (t.Hour()+11)%12 + 1
		weekday := int(t.Weekday())
		year, week := t.ISOWeek()
		switch c := format[i]; c {
		case 'a':
			sb.WriteString(t.Format("Mon"))
		case 'A':
			sb.WriteString(t.Format("Monday"))
		case 'b', 'h':
			sb.WriteString(t.Format("Jan"))
		case 'B':
			sb.WriteString(t.Format("January"))
		case 'c':
			sb.WriteString(t.Format("Mon Jan _2 15:04:05 2006"))
		case 'C':
			number(t.Year()/100, 2)
		case 'd':
			number(t.Day(), 2)
		case 'D', 'x':
			sb.WriteString(t.Format("01/02/06"))
		case 'e':
			spaced(t.Day(), 2)
		case 'f':
			fmt.Fprintf(&sb, "%06d", t.Nanosecond()/1000)
		case 'F':
			sb.WriteString(t.Format("2006-01-02"))
		case 'g':
			number(year%100, 2)
		case 'G':
			number(year, 4)
		case 'H':
			number(t.Hour(), 2)
		case 'I':
			number(hour12, 2)
		case 'j':
			number(t.YearDay(), 3)
		case 'k':
			spaced(t.Hour(), 2)
		case 'l':
			spaced(hour12, 2)
		case 'm':
			number(int(t.Month()), 2)
		case 'M':
			number(t.Minute(), 2)
		case 'n':
			sb.WriteByte('\n')
		case 'p':
			sb.WriteString(t.Format("PM"))
		case 'P':
			sb.WriteString(t.Format("pm"))
		case 'r':
			sb.WriteString(t.Format("03:04:05 PM"))
		case 'R':
			sb.WriteString(t.Format("15:04"))
		case 's':
			fmt.Fprintf(&sb, "%d", t.Unix())
		case 'S':
			number(t.Second(), 2)
		case 't':
			sb.WriteByte('\t')
		case 'T', 'X':
			sb.WriteString(t.Format("15:04:05"))
		case 'u':
			number((weekday+6)%7+1, 1)
		case 'U':
			number((t.YearDay()-1+7-weekday)/7, 2)
		case 'V':
			number(week, 2)
		case 'w':
			number(weekday, 1)
		case 'W':
			number((t.YearDay()-1+7-(weekday+6)%7)/7, 2)
		case 'y':
			number(t.Year()%100, 2)
		case 'Y':
			number(t.Year(), 4)
		case 'z', 'Z': // the time has no zone
		case '%':
			sb.WriteByte('%')
		default:
			return "", fmt.Errorf("strftime_now: the directive %%%c is not supported", c)
		}
	}
	return sb.String(), nil
}
