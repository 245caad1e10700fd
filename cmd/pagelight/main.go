// Command pagelight runs ERNIE-4.5 on this machine: it chats, serves an OpenAI-compatible API and a page, and measures.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/pagelight/pagelight/engine"
)

// Set by the linker: the version, and the commit of the source where a build knows it.
var (
	version = "dev"
	commit  string
)

// Exit codes. A script can tell a wrong call from a model that does not load from an answer that failed.
const (
	exitOK          = 0
	exitFailed      = 1 // the work was begun and failed
	exitUsage       = 2 // the call is wrong
	exitModel       = 3 // the model cannot be opened or cannot do this: missing or broken files, not enough memory
	exitDevice      = 4 // there is no device of the kind asked for, or it was lost
	exitInterrupted = 130
)

// cli is the command line.
type cli struct {
	Serve      serveCmd      `cmd:"" help:"Serve the OpenAI-compatible API and the page."`
	Chat       chatCmd       `cmd:"" help:"Chat with a model in the terminal."`
	Generate   generateCmd   `cmd:"" help:"Answer one prompt and stop."`
	Tokenize   tokenizeCmd   `cmd:"" help:"Turn texts into token ids, or back."`
	Logits     logitsCmd     `cmd:"" help:"Compute the logits of test cases."`
	Perplexity perplexityCmd `cmd:"" help:"Measure how well a model predicts a text."`
	Pull       pullCmd       `cmd:"" help:"Download a model of the Hugging Face hub."`
	List       listCmd       `cmd:"" help:"List the models that were downloaded."`
	Show       showCmd       `cmd:"" help:"Show what a model is."`
	Rm         rmCmd         `cmd:"" help:"Remove models that were downloaded."`
	Plan       planCmd       `cmd:"" help:"Show what a model needs of memory."`
	Pack       packCmd       `cmd:"" help:"Write a model as a bundle, made smaller if you wish."`
	Bench      benchCmd      `cmd:"" help:"Measure a model on this machine, or a server under load."`
	Export     exportCmd     `cmd:"" help:"Write the page as a folder for any file host."`
	Doctor     doctorCmd     `cmd:"" help:"Show what this machine offers and test every kernel on it."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// usageError is an error in how the program was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// modelError is an error in opening a model.
type modelError struct{ error }

func (e modelError) Unwrap() error { return e.error }

// app is what every command gets.
type app struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	person     bool // somebody types at standard input and reads standard output
	interrupts *interrupts
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	for i, arg := range args {
		if !utf8.ValidString(arg) { // kong would put U+FFFD in place of what is not
			fmt.Fprintf(stderr, "pagelight: argument %d is not valid UTF-8: %q\n", i+1, arg)
			return exitUsage
		}
	}
	var c cli
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("pagelight"),
		kong.Description("One engine for ERNIE-4.5 and its relatives: in a browser tab, on a server, on the command line.\n\n"+
			"A MODEL is a folder (a Hugging Face checkpoint or a Pagelight bundle), a file in one, a .gguf file, \"hf:ORG/NAME\" (a model of "+
			"the Hugging Face hub, downloaded when it is not in the cache; \"pagelight pull --help\" says more), \"builtin\" (a tiny English and "+
			"Chinese chat model that is part of this program), or \"synthetic:ernie-4.5-0.3b\" (a speed test of full size)."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.WithHyphenPrefixedParameters(true), // --seed -7, --prompt "- milk"
		kong.Vars{"version": "pagelight " + version},
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exit = code; panic(exitPanic{}) }),
	)
	if err != nil {
		panic("BUG: command line: " + err.Error())
	}
	kctx, err := parse(parser, args)
	switch {
	case exit >= 0: // --help or --version
		return exit
	case err != nil:
		fmt.Fprintf(stderr, "pagelight: %v\nRun \"pagelight --help\" or \"pagelight COMMAND --help\" for what there is.\n", err)
		return exitUsage
	}
	a := &app{stdout: stdout, stderr: stderr, person: isTerminal(stdin) && isTerminal(stdout), interrupts: &interrupts{}}
	ctx, stop := a.interrupts.notify(ctx)
	defer stop()
	a.ctx, a.stdin = ctx, newCancellableReader(ctx, stdin)
	err = kctx.Run(a)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "pagelight: interrupted")
	default:
		fmt.Fprintf(stderr, "pagelight: %v\n", err)
	}
	return exitCode(ctx, err)
}

// exitPanic carries kong's wish to exit out of its depths.
type exitPanic struct{}

func parse(parser *kong.Kong, args []string) (ctx *kong.Context, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exitPanic); !ok {
				panic(r)
			}
		}
	}()
	return parser.Parse(args)
}

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var model modelError
	var param *engine.ParamError
	var long *engine.ContextLengthError
	var template *engine.TemplateError
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, engine.ErrNoAdapter), errors.Is(err, engine.ErrDeviceLost):
		return exitDevice
	case errors.As(err, &usage), errors.As(err, &param), errors.As(err, &long):
		return exitUsage
	case errors.As(err, &model), errors.As(err, &template), errors.Is(err, engine.ErrNoTokenizer), errors.Is(err, engine.ErrNoChatTemplate):
		return exitModel
	}
	return exitFailed
}
