package openai

import (
	"context"
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/engine"
)

// StatusCancelled is the status of a request that its client gave up: what nginx logs for a client that went away. It is
// seen on the protocol transports and in logs only.
const StatusCancelled = 499

// Codes of errors that programs branch on.
const (
	CodeInvalidJSON       = "invalid_json"
	CodeInvalidUTF8       = "invalid_utf8"
	CodeInvalidType       = "invalid_type"
	CodeInvalidValue      = "invalid_value"
	CodeMissing           = "missing_required_parameter"
	CodeUnsupported       = "unsupported_parameter"
	CodeContextLength     = "context_length_exceeded"
	CodeModelNotFound     = "model_not_found"
	CodeCancelled         = "cancelled"
	CodeTimeout           = "timeout"
	CodeClosed            = "engine_closed"
	CodeLoading           = "loading"
	CodeDraining          = "shutting_down"
	CodeDeviceLost        = "device_lost"
	CodeNoAdapter         = "no_adapter"
	CodeNotEnoughMemory   = "not_enough_memory"
	CodeTooManyRequests   = "too_many_requests"
	CodeQueueFull         = "queue_full"
	CodeOther             = "error"
	maxFoundInMessage     = 40
	maxIgnoredInHeader    = 32
	maxIgnoredNameInBytes = 64
)

// Error is the object under "error" of every answer that is not a success.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // the field at fault: "messages[0].content"
	Code    *string `json:"code"`
	// Need and Have are bytes, with the code not_enough_memory; Have is 0 when the device does not say.
	Need int64 `json:"need,omitempty"`
	Have int64 `json:"have,omitempty"`
	// File is set with the code broken_file.
	File string `json:"file,omitempty"`
}

// ErrorBody is a whole HTTP body or stream event that says what went wrong.
type ErrorBody struct {
	Error Error `json:"error"`
}

// StatusError is an error that knows its HTTP status and its wire form.
type StatusError struct {
	Status int
	Detail Error
}

func (e *StatusError) Error() string { return e.Detail.Message }

// NewError makes a StatusError. Its type follows from the status; an empty param or code becomes null.
func NewError(status int, code, param, message string) *StatusError {
	return &StatusError{Status: status, Detail: wireError(status, code, param, message)}
}

func wireError(status int, code, param, message string) Error {
	e := Error{Message: message, Type: errorType(status)}
	if param != "" {
		e.Param = &param
	}
	if code != "" {
		e.Code = &code
	}
	return e
}

func errorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 429:
		return "rate_limit_error"
	case status == StatusCancelled:
		return "cancelled"
	case status == 503:
		return "service_unavailable"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// ErrorFor translates an error of the engine, of this package or of a context into a status and its wire form.
func ErrorFor(err error) (status int, e Error) {
	var (
		own     *StatusError
		length  *engine.ContextLengthError
		param   *engine.ParamError
		memory  *engine.MemoryError
		crashed *panicError
	)
	switch {
	case errors.As(err, &own):
		return own.Status, own.Detail
	case errors.As(err, &length):
		return 400, wireError(400, CodeContextLength, "", length.Error())
	case errors.As(err, &param):
		return 400, wireError(400, CodeInvalidValue, param.Field, param.Error())
	case errors.Is(err, engine.ErrNoTokenizer), errors.Is(err, engine.ErrNoChatTemplate):
		return 400, wireError(400, CodeInvalidValue, "", err.Error()) // what was asked for is not what this model can do
	case errors.As(err, &crashed):
		return 500, wireError(500, CodeOther, "", "internal error; the server's log says more")
	case errors.Is(err, engine.ErrQueueFull):
		return 429, wireError(429, CodeQueueFull, "", err.Error()+"; try again later")
	case errors.Is(err, engine.ErrDeviceLost):
		return 500, wireError(500, CodeDeviceLost, "", err.Error())
	case errors.As(err, &memory):
		e := wireError(503, CodeNotEnoughMemory, "", err.Error())
		e.Need, e.Have = memory.Need, memory.Have
		return 503, e
	case errors.Is(err, engine.ErrOutOfMemory):
		return 503, wireError(503, CodeNotEnoughMemory, "", err.Error())
	case errors.Is(err, engine.ErrClosed):
		return 503, wireError(503, CodeClosed, "", err.Error())
	case errors.Is(err, engine.ErrNoAdapter):
		return 503, wireError(503, CodeNoAdapter, "", err.Error())
	case errors.Is(err, context.Canceled):
		return StatusCancelled, wireError(StatusCancelled, CodeCancelled, "", "the request was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return 504, wireError(504, CodeTimeout, "", "the request took too long")
	}
	return 500, wireError(500, CodeOther, "", err.Error())
}

// panicError is a panic that was caught while answering; what it says goes to the log, not to the client.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// IgnoredHeader renders Call.Ignored for a header line: names joined by commas, long lists and names cut short, bytes that
// do not belong into a header percent-encoded.
func IgnoredHeader(names []string) string {
	var b []byte
	for i, name := range names {
		if i > 0 {
			b = append(b, ", "...)
		}
		if i == maxIgnoredInHeader {
			return string(fmt.Appendf(b, "and %d more", len(names)-i))
		}
		if len(name) > maxIgnoredNameInBytes {
			name = name[:maxIgnoredNameInBytes] + "..."
		}
		for _, c := range []byte(name) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.', c == '[', c == ']':
				b = append(b, c)
			default:
				b = fmt.Appendf(b, "%%%02X", c)
			}
		}
	}
	return string(b)
}
