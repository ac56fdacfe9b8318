package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"yurt.test/goplugin/wire/drivers"
)

const pollPeriod = 50 * time.Millisecond

// taskState is what RecoverTask is given back; its time is one of msgpack's extensions.
type taskState struct {
	Pid       int       `codec:"pid"`
	StartedAt time.Time `codec:"started_at"`
}

// task is a command in a session of its own, so that it outlives the plugin.
type task struct {
	config  *drivers.TaskConfig
	state   taskState
	ended   chan struct{}
	endedAt time.Time
	code    int
	number  syscall.Signal
	problem string
}

func startTask(asked *drivers.TaskConfig, config taskConfig) (*task, error) {
	command := exec.Command(config.Command, config.Args...)
	command.Dir = filepath.Join(asked.AllocDir, asked.Name)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: credential(asked)}
	command.Env = environment(asked)
	stdout, err := os.OpenFile(asked.StdoutPath, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := os.OpenFile(asked.StderrPath, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	command.Stdout, command.Stderr = stdout, stderr
	if err := command.Start(); err != nil {
		return nil, err
	}
	made := &task{
		config: asked, ended: make(chan struct{}), state: taskState{Pid: command.Process.Pid, StartedAt: time.Now()},
	}
	go made.wait(command)
	return made, nil
}

// credential is the dynamic user of a task, whose name holds its ids; nil for another user.
func credential(asked *drivers.TaskConfig) *syscall.Credential {
	id, err := strconv.ParseUint(strings.TrimPrefix(asked.User, "nomad-"), 10, 31)
	if err != nil || !strings.HasPrefix(asked.User, "nomad-") {
		return nil
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
}

func environment(asked *drivers.TaskConfig) []string {
	made := []string{}
	for name, value := range asked.Env {
		made = append(made, name+"="+value)
	}
	for name, value := range asked.DeviceEnv {
		made = append(made, name+"="+value)
	}
	return made
}

func (t *task) wait(command *exec.Cmd) {
	err := command.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		how := exit.Sys().(syscall.WaitStatus)
		if how.Signaled() {
			t.number = how.Signal()
		}
		t.code = how.ExitStatus()
	}
	t.endedAt = time.Now()
	close(t.ended)
}

// recoverTask finds the process of an earlier plugin; how such a process ends cannot be known.
func recoverTask(config *drivers.TaskConfig, state taskState) (*task, error) {
	if !isAlive(state.Pid) {
		return nil, errors.New("the process is gone")
	}
	made := &task{config: config, state: state, ended: make(chan struct{})}
	go func() {
		for isAlive(state.Pid) {
			time.Sleep(pollPeriod)
		}
		made.problem = "how the task ended is not known"
		made.endedAt = time.Now()
		close(made.ended)
	}()
	return made, nil
}

// isAlive tells whether a process runs; one that ended and that nobody waited for does not.
func isAlive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, found := strings.Cut(string(data), ") ")
	return found && !strings.HasPrefix(state, "Z")
}

func (t *task) isRunning() bool {
	select {
	case <-t.ended:
		return false
	default:
		return true
	}
}

func (t *task) signal(number syscall.Signal) error {
	return syscall.Kill(-t.state.Pid, number)
}

func (t *task) stop(number syscall.Signal, patience time.Duration) {
	if !t.isRunning() {
		return
	}
	_ = t.signal(number)
	select {
	case <-t.ended:
	case <-time.After(patience):
		_ = t.signal(syscall.SIGKILL)
		<-t.ended
	}
}

func (t *task) exitResult() *drivers.ExitResult {
	return &drivers.ExitResult{ExitCode: int32(t.code), Signal: int32(t.number)}
}

// status has a time of the year 1 for what has not happened, as Go's zero time is.
func (t *task) status() *drivers.TaskStatus {
	made := &drivers.TaskStatus{
		Id: t.config.Id, Name: t.config.Name, State: drivers.TaskState_RUNNING,
		StartedAt: timestamppb.New(t.state.StartedAt), CompletedAt: timestamppb.New(time.Time{}),
		Result: &drivers.ExitResult{},
	}
	if !t.isRunning() {
		made.State = drivers.TaskState_EXITED
		made.CompletedAt, made.Result = timestamppb.New(t.endedAt), t.exitResult()
	}
	return made
}

func (t *task) pidText() string {
	return strconv.Itoa(t.state.Pid)
}
