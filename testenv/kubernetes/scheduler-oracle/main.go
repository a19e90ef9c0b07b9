// Command scheduler-oracle answers what kube-scheduler would do with a pod: it links the scheduling framework and all
// plugins of kube-scheduler, and runs them on a cluster that is only a description.
//
// In: JSON requests, one a line, on standard input: objects of a cluster and a pod. Out: one JSON answer a line, in the
// same order. docs/rig.md has the protocol. Never: a request to any server, or a rule of scheduling of its own.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// The release whose packages are linked, set by the linker.
var version = "v0.0.0"

// failure is the answer to a line that cannot be understood.
type failure struct {
	Error string `json:"error"`
}

func main() {
	showVersion := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("scheduler-oracle", version)
		return
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	metrics.Register()
	if err := serve(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve answers each line.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	answers := bufio.NewWriter(out)
	encoder := json.NewEncoder(answers)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(answerTo(line)); err != nil {
				return err
			}
		}
		// Callers send many lines before they read.
		if lines.Buffered() == 0 || err != nil {
			if err := answers.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// answerTo runs one request. A plugin that panics makes a failure.
func answerTo(line []byte) (result any) {
	defer func() {
		if cause := recover(); cause != nil {
			if os.Getenv("TRACE") != "" {
				debug.PrintStack()
			}
			result = failure{Error: fmt.Sprint("panic: ", cause)}
		}
	}()
	var asked request
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		return failure{Error: err.Error()}
	}
	if asked.Pod == nil {
		return failure{Error: "pod: missing"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cycle, err := newCycle(ctx, &asked)
	if err != nil {
		return failure{Error: err.Error()}
	}
	answer, err := cycle.run(ctx)
	if err != nil {
		return failure{Error: err.Error()}
	}
	return answer
}
