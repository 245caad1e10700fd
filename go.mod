module github.com/pagelight/pagelight

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/cogentcore/webgpu v0.23.0
	github.com/eliben/go-sentencepiece v0.7.0
	github.com/go-chi/chi/v5 v5.5.0
	golang.org/x/term v0.48.0
	nhooyr.io/websocket v1.8.17
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.34.2 // indirect
)
