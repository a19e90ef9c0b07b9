package main

import (
	"log"
	"os"
	"runtime/pprof"

	"github.com/go-logr/logr"
)

// nowhere is where logs go. In: log lines. Out: nothing.
type nowhere struct{}

func (nowhere) Init(logr.RuntimeInfo)            {}
func (nowhere) Enabled(int) bool                 { return false }
func (nowhere) Info(int, string, ...any)         {}
func (nowhere) Error(error, string, ...any)      {}
func (n nowhere) WithValues(...any) logr.LogSink { return n }
func (n nowhere) WithName(string) logr.LogSink   { return n }

// startProfile writes a CPU profile until the returned function is called; the empty name means none.
func startProfile(name string) func() {
	if name == "" {
		return func() {}
	}
	file, err := os.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		log.Fatal(err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}
}
