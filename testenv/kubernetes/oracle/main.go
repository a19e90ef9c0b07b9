// Command oracle answers what a kubelet would do with a pod: it links the kubelet's own resource managers, allocation
// manager, predicates and configuration, and runs them on a machine that is only a description.
//
// In: JSON requests, one a line, on standard input. Out: one JSON answer a line, in the same order. docs/rig.md has the
// protocol. Never: a container, a cgroup, a request to any server, or a rule of admission of its own.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// The release whose packages are linked, set by the linker.
var version = "v0.0.0"

// request is a line of input; which fields count depends on the operation.
type request struct {
	Op      string          `json:"op"`
	Machine json.RawMessage `json:"machine"`
	Kubelet json.RawMessage `json:"kubelet"`
	Node    nodeSpec        `json:"node"`
	Devices []resourceSpec  `json:"devices"`
	Pod     *v1.Pod         `json:"pod"`
	UID     types.UID       `json:"uid"`
	Totals  *bool           `json:"totals"`
	Run     *bool           `json:"run"`
	Plugins *bool           `json:"plugins"`
}

// failure is the answer to a line that cannot be understood.
type failure struct {
	Error string `json:"error"`
}

// oracle is the program's state: at most one machine at a time.
type oracle struct {
	folder string
	starts int
	rig    *rig
	// Set by a panic of a manager, until the next start.
	broken bool
}

var errNoStart = errors.New("no machine: the first request is a start")
var errBroken = errors.New("a manager panicked: only a start is possible")

func main() {
	stateDir := flag.String("state-dir", "/dev/shm", "folder in which a temporary folder for checkpoints is made")
	profile := flag.String("cpu-profile", "", "file for a CPU profile")
	showVersion := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("oracle", version)
		return
	}
	folder, err := os.MkdirTemp(*stateDir, "tholepin-oracle-")
	if err != nil {
		log.Fatal(err)
	}
	stop := startProfile(*profile)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		_ = os.RemoveAll(folder)
		os.Exit(1)
	}()
	silence()
	o := &oracle{folder: folder}
	err = o.serve(os.Stdin, os.Stdout)
	stop()
	o.close()
	_ = os.RemoveAll(folder)
	if err != nil {
		log.Fatal(err)
	}
}

// silence turns off everything that is neither a decision nor part of one: logs, and the CPU manager's loop that
// writes to the runtime. The loop is started with this channel, and a closed one ends it before its first round.
func silence() {
	klog.SetLogger(klog.New(nowhere{}))
	never := make(chan struct{})
	close(never)
	wait.NeverStop = never
	debug.SetGCPercent(400)
}

// serve answers until the input ends. Answers are held back as long as further requests wait in the buffer.
func (o *oracle) serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	answers := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(o.answer(line)); err != nil {
				return err
			}
		}
		if err != nil {
			flushed := answers.Flush()
			if err == io.EOF {
				return flushed
			}
			return err
		}
		if lines.Buffered() == 0 {
			if err := answers.Flush(); err != nil {
				return err
			}
		}
	}
}

// answer carries out one request.
func (o *oracle) answer(line []byte) (answer any) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return failure{Error: "malformed request: " + err.Error()}
	}
	defer func() {
		if what := recover(); what != nil {
			o.broken = true
			answer = map[string]string{"panic": fmt.Sprint(what), "stack": string(debug.Stack())}
		}
	}()
	if r.Op == "start" {
		return o.start(&r)
	}
	if o.broken {
		return failure{Error: errBroken.Error()}
	}
	if o.rig == nil {
		return failure{Error: errNoStart.Error()}
	}
	answer, err := o.rig.do(&r)
	if err != nil {
		return failure{Error: err.Error()}
	}
	return answer
}

// started is the answer to start and restart.
type started struct {
	OK          bool              `json:"ok"`
	Allocatable map[string]string `json:"allocatable,omitempty"`
	Rejected    *[]rejection      `json:"rejected,omitempty"`
	Error       string            `json:"error,omitempty"`
}

// start forgets the former machine and starts a kubelet on a new one.
func (o *oracle) start(r *request) any {
	o.close()
	o.broken = false
	machine, err := parseMachine(r.Machine)
	if err != nil {
		return failure{Error: err.Error()}
	}
	o.starts++
	rig, err := newRig(fmt.Sprintf("%s/%d", o.folder, o.starts), machine, r)
	if err != nil {
		return started{Error: err.Error()}
	}
	o.rig = rig
	return started{OK: true, Allocatable: rig.kubelet.allocatable()}
}

// close ends the machine, if there is one.
func (o *oracle) close() {
	if o.rig != nil && !o.broken {
		o.rig.close()
	}
	if o.rig != nil {
		_ = os.RemoveAll(o.rig.folder)
	}
	o.rig = nil
}
