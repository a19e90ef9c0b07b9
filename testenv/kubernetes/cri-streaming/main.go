// Command cri-streaming is the streaming server of the rig's container runtime: the other end of what a kubelet proxies
// for `exec` and `port-forward`. The protocols (SPDY, WebSocket) are those of the package that real runtimes use.
//
// In: the path of the runtime's unix socket. Each question there gets files as an answer: the listener of this server,
// the pipes of a process, a socket in a pod. Out: the bytes of streams, copied. Never: a process, a namespace, or a
// decision; those are the runtime's, see crates/testkit/src/cri/streaming.rs.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// The release that the rig runs, set by the linker.
var version = "v0.0.0"

const (
	// Connections that say nothing for so long are closed, as the kubelet has it (streamingConnectionIdleTimeout).
	idleTimeout = 4 * time.Hour
	// A client has so long to make its streams.
	creationTimeout = 30 * time.Second
	// More files come with no answer.
	maxFiles = 3
)

// runtime is the path of the runtime's socket.
type runtime string

// conversation is one question and its answers.
type conversation struct {
	conn    *net.UnixConn
	answers *json.Decoder
	files   []*os.File
}

// answer is one line from the runtime.
type answer struct {
	Error string `json:"error"`
	Code  int    `json:"code"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: cri-streaming SOCKET")
	}
	if os.Args[1] == "--version" {
		fmt.Println("cri-streaming", version)
		return
	}
	log.Fatal(serve(runtime(os.Args[1])))
}

func serve(r runtime) error {
	question, err := r.ask("listener")
	if err != nil {
		return err
	}
	listener, err := net.FileListener(question.next())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{token}", func(w http.ResponseWriter, req *http.Request) {
		options, err := remotecommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, req, r, "", "", req.PathValue("token"), nil, options,
			idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portforward/{sandbox}", func(w http.ResponseWriter, req *http.Request) {
		options, err := portforward.NewV4Options(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, req, r, req.PathValue("sandbox"), "", options,
			idleTimeout, creationTimeout, portforward.SupportedProtocols)
	})
	return http.Serve(listener, mux)
}

// ExecInContainer has the runtime start the command behind a token, and copies its streams until it has ended.
func (r runtime) ExecInContainer(_ context.Context, _, _, token string, _ []string, in io.Reader,
	out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	process, failed := r.ask("exec " + token)
	if failed != nil {
		return failed
	}
	defer process.conn.Close()
	if in != nil {
		stdin := process.next()
		go func() {
			_, _ = io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	var copies sync.WaitGroup
	for _, to := range []io.WriteCloser{out, err} {
		if to == nil {
			continue
		}
		from := process.next()
		copies.Go(func() {
			_, _ = io.Copy(to, from)
			// The process gets SIGPIPE if the client is gone.
			from.Close()
		})
	}
	end, failed := process.answer()
	if failed != nil {
		return failed
	}
	copies.Wait()
	if end.Code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", end.Code), Code: end.Code}
	}
	return nil
}

// PortForward copies between a client and a port in a pod until the pod's side is done.
func (r runtime) PortForward(_ context.Context, sandbox, _ string, port int32, client io.ReadWriteCloser) error {
	question, err := r.ask(fmt.Sprintf("port %s %d", sandbox, port))
	if err != nil {
		return err
	}
	defer question.conn.Close()
	file := question.next()
	pod, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return err
	}
	defer pod.Close()
	tcp, ok := pod.(*net.TCPConn)
	if !ok {
		return errors.New("the runtime's socket is no TCP connection")
	}
	go func() {
		_, _ = io.Copy(tcp, client)
		_ = tcp.CloseWrite()
	}()
	_, err = io.Copy(client, tcp)
	return err
}

// ask sends one line and takes the first answer, with its files.
func (r runtime) ask(question string) (*conversation, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: string(r), Net: "unix"})
	if err != nil {
		return nil, err
	}
	c, err := converse(conn, question)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func converse(conn *net.UnixConn, question string) (*conversation, error) {
	if _, err := io.WriteString(conn, question+"\n"); err != nil {
		return nil, err
	}
	// Files come with the first byte of an answer.
	text, control := make([]byte, 64<<10), make([]byte, syscall.CmsgSpace(maxFiles*4))
	read, controlled, _, _, err := conn.ReadMsgUnix(text, control)
	if err != nil {
		return nil, err
	}
	files, err := received(control[:controlled])
	if err != nil {
		return nil, err
	}
	all := bufio.NewReader(io.MultiReader(bytes.NewReader(text[:read]), conn))
	c := &conversation{conn: conn, answers: json.NewDecoder(all), files: files}
	if _, err := c.answer(); err != nil {
		return nil, err
	}
	return c, nil
}

// received makes files of what came beside a message.
func received(control []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, message := range messages {
		numbers, err := syscall.ParseUnixRights(&message)
		if err != nil {
			return nil, err
		}
		for _, number := range numbers {
			// Then a copy that waits takes no thread, and ends when the file is closed.
			if err := syscall.SetNonblock(number, true); err != nil {
				return nil, err
			}
			files = append(files, os.NewFile(uintptr(number), "from the runtime"))
		}
	}
	return files, nil
}

// answer takes the next line; a refusal is an error.
func (c *conversation) answer() (answer, error) {
	var a answer
	if err := c.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("the runtime does not answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// next takes the next file; both sides know how many there are.
func (c *conversation) next() *os.File {
	if len(c.files) == 0 {
		return nil
	}
	file := c.files[0]
	c.files = c.files[1:]
	return file
}
