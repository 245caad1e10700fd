package sample

import "math"

// exp and log are those of Go's math package (from FreeBSD's msun, e_exp.c
// and e_log.c) without its assembly and with each product rounded before
// it is added: the conversions to float64 forbid fused multiply-add. So they
// return the same bits on amd64, arm64 and WebAssembly, and a seed draws the
// same tokens everywhere. Errors are below 1 ulp, as there.

const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// exp returns e**x for x <= 0.
func exp(x float64) float64 {
	const (
		log2e     = 1.44269504088896338700e+00
		underflow = -7.45133219101941108420e+02
		nearZero  = 1.0 / (1 << 28)

		p1 = 1.66666666666666657415e-01
		p2 = -2.77777777770155933842e-03
		p3 = 6.61375632143793436117e-05
		p4 = -1.65339022054652515390e-06
		p5 = 4.13813679705723846039e-08
	)
	switch {
	case x < underflow:
		return 0
	case x > -nearZero:
		return 1 + x
	}
	k := int(float64(log2e*x) - 0.5)
	hi := x - float64(float64(k)*ln2Hi)
	lo := float64(float64(k) * ln2Lo)
	r := hi - lo
	t := float64(r * r)
	c := p4 + float64(t*p5)
	c = p3 + float64(t*c)
	c = p2 + float64(t*c)
	c = p1 + float64(t*c)
	c = r - float64(t*c)
	y := 1 - ((lo - float64(r*c)/(2-c)) - hi)
	if k < -1021 {
		return math.Ldexp(y, k) // subnormal
	}
	return y * math.Float64frombits(uint64(k+1023)<<52)
}

// log returns the natural logarithm of x for 0 < x < +Inf.
func log(x float64) float64 {
	const (
		l1 = 6.666666666666735130e-01
		l2 = 3.999999999940941908e-01
		l3 = 2.857142874366239149e-01
		l4 = 2.222219843214978396e-01
		l5 = 1.818357216161805012e-01
		l6 = 1.531383769920937332e-01
		l7 = 1.479819860511658591e-01
	)
	bits := math.Float64bits(x)
	ki := int(bits>>52) - 1022
	f1 := math.Float64frombits(bits&(1<<52-1) | 1022<<52)
	if bits>>52 == 0 {
		f1, ki = math.Frexp(x) // subnormal
	}
	if f1 < math.Sqrt2/2 {
		f1 *= 2
		ki--
	}
	f := f1 - 1
	k := float64(ki)
	s := f / (2 + f)
	s2 := float64(s * s)
	s4 := float64(s2 * s2)
	a := l5 + float64(s4*l7)
	a = l3 + float64(s4*a)
	a = l1 + float64(s4*a)
	b := l4 + float64(s4*l6)
	b = l2 + float64(s4*b)
	r := float64(s2*a) + float64(s4*b)
	hfsq := float64(float64(0.5*f) * f)
	return float64(k*ln2Hi) - ((hfsq - (float64(s*(hfsq+r)) + float64(k*ln2Lo))) - f)
}
