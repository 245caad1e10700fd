package host

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/pagelight/pagelight/internal/openai"
)

// maxReportBytes is the size of the largest report: one with hundreds of tests.
const maxReportBytes = 1 << 20

// report takes what the page of measurements found.
func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReportBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, openai.NewError(http.StatusRequestEntityTooLarge, openai.CodeInvalidValue, "", "a report has at most 1 MiB"))
		return
	case err != nil:
		return // the client is gone
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil || object["schema"] == nil {
		writeError(w, openai.NewError(http.StatusBadRequest, openai.CodeInvalidValue, "", "a report is a JSON object with 'schema'"))
		return
	}
	if err := s.cfg.Reports(body); err != nil {
		s.log.Error("a report of the page was not kept", "err", err)
		writeError(w, openai.NewError(http.StatusInternalServerError, openai.CodeInvalidValue, "", "the report was not kept"))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
