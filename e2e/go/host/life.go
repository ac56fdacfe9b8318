package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"yurt.test/goplugin/plug"
	"yurt.test/goplugin/wire/base"
	"yurt.test/goplugin/wire/drivers"
	"yurt.test/goplugin/wire/hclspec"
)

const (
	callLimit = 20 * time.Second
	taskID    = "8f1c/web/1"
	script    = `trap 'echo got usr1' USR1; trap 'echo bye; exit 3' TERM; echo "hello $GREETING"; ` +
		`echo oops >&2; echo $$ > pid; while true; do sleep 0.05; done`
)

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callLimit)
}

// introduce does what an agent does with each new plugin, in its order.
func (h *host) introduce() {
	ctx, cancel := limited()
	defer cancel()
	info, err := h.base.PluginInfo(ctx, &base.PluginInfoRequest{})
	check(err, "PluginInfo")
	h.saw["info"] = fmt.Sprintf("%s %s %v", info.Name, info.Type, info.PluginApiVersions)
	schema, err := h.base.ConfigSchema(ctx, &base.ConfigSchemaRequest{})
	check(err, "ConfigSchema")
	h.saw["plugin_options"] = optionNames(schema.Spec)
	_, err = h.base.SetConfig(ctx, &base.SetConfigRequest{
		MsgpackConfig: plug.Encode(h.config), PluginApiVersion: info.PluginApiVersions[0],
		NomadConfig: &base.NomadConfig{Driver: &base.NomadDriverConfig{ClientMinPort: 14000, ClientMaxPort: 14512,
			Topology: &base.ClientTopology{NodeIds: []uint32{0}, Cores: []*base.ClientTopologyCore{{BaseSpeed: 2000}}}}},
	})
	check(err, "SetConfig")
	tasks, err := h.driver.TaskConfigSchema(ctx, &drivers.TaskConfigSchemaRequest{})
	check(err, "TaskConfigSchema")
	h.saw["task_options"] = optionNames(tasks.Spec)
	can, err := h.driver.Capabilities(ctx, &drivers.CapabilitiesRequest{})
	check(err, "Capabilities")
	h.saw["can_exec"] = can.Capabilities.Exec
	found, err := h.driver.Fingerprint(context.Background(), &drivers.FingerprintRequest{})
	check(err, "Fingerprint")
	first, err := found.Recv()
	check(err, "first Fingerprint")
	h.saw["health"] = first.Health.String()
	_, err = h.driver.TaskEvents(context.Background(), &drivers.TaskEventsRequest{})
	check(err, "TaskEvents")
}

func optionNames(spec *hclspec.Spec) []string {
	names := []string{}
	for name := range spec.GetObject().GetAttributes() {
		names = append(names, name)
	}
	return names
}

// output is a FIFO that an agent reads.
type output struct {
	path   string
	mutex  sync.Mutex
	text   strings.Builder
	closed bool
}

func (h *host) output(name string) *output {
	made := &output{path: h.path(name)}
	err := syscall.Mkfifo(made.path, 0o600)
	if !os.IsExist(err) {
		check(err, "mkfifo")
	}
	go func() { // As an agent does: it waits for a writer, and reads until the last one has closed the pipe.
		file, err := os.OpenFile(made.path, os.O_RDONLY, 0)
		check(err, "open fifo")
		data := make([]byte, 4096)
		for {
			count, err := file.Read(data)
			made.mutex.Lock()
			made.text.Write(data[:count])
			made.closed = made.closed || err != nil
			made.mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return made
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

func (o *output) isClosed() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.closed
}

func await(what string, holds func() bool) {
	for end := time.Now().Add(callLimit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			check(fmt.Errorf("not within %s", callLimit), what)
		}
	}
}

func (h *host) taskConfig() *drivers.TaskConfig {
	config := map[string]interface{}{"command": "/bin/sh", "args": []string{"-c", script}}
	for name, value := range h.task {
		config[name] = value
	}
	for _, folder := range []string{"alloc", "alloc/alloc/logs", "alloc/web/local", "alloc/web/secrets"} {
		check(os.MkdirAll(h.path(folder), 0o700), "mkdir")
	}
	return &drivers.TaskConfig{
		Id: taskID, Name: "web", MsgpackDriverConfig: plug.Encode(config), AllocDir: h.path("alloc"),
		Env:        map[string]string{"GREETING": "world", "PATH": os.Getenv("PATH")},
		StdoutPath: h.path("stdout"), StderrPath: h.path("stderr"), JobName: "job", JobId: "job",
		TaskGroupName: "group", AllocId: "8f1c", Namespace: "default", NodeName: "node", NodeId: "node-id",
		Resources: &drivers.Resources{
			AllocatedResources: &drivers.AllocatedTaskResources{
				Cpu: &drivers.AllocatedCpuResources{CpuShares: 100}, Memory: &drivers.AllocatedMemoryResources{MemoryMb: 64},
				Networks: []*drivers.NetworkResource{{Ip: "127.0.0.1"}},
			},
			LinuxResources: &drivers.LinuxResources{
				CpuShares: 100, CpuPeriod: 100000, MemoryLimitBytes: 64 << 20, PercentTicks: 0.01,
				CpusetCgroup: "/sys/fs/cgroup/nomad.slice/share.slice/8f1c.web.scope",
			},
		},
	}
}

func (h *host) start() (*drivers.TaskHandle, *output, *output) {
	ctx, cancel := limited()
	defer cancel()
	stdout, stderr := h.output("stdout"), h.output("stderr")
	answer, err := h.driver.StartTask(ctx, &drivers.StartTaskRequest{Task: h.taskConfig()})
	check(err, "StartTask")
	if answer.Result != drivers.StartTaskResponse_SUCCESS {
		check(fmt.Errorf("%s: %s", answer.Result, answer.DriverErrorMsg), "StartTask")
	}
	await("the task's output", func() bool { return strings.Contains(stdout.String(), "hello world\n") })
	return answer.Handle, stdout, stderr
}

// live leads a task through all that an agent may ask.
func (h *host) live() {
	ctx, cancel := limited()
	defer cancel()
	_, stdout, stderr := h.start()
	h.inspect("running")
	h.useTask(ctx)
	_, err := h.driver.SignalTask(ctx, &drivers.SignalTaskRequest{TaskId: taskID, Signal: "SIGUSR1"})
	check(err, "SignalTask")
	await("the signal", func() bool { return strings.Contains(stdout.String(), "got usr1") })
	_, err = h.driver.DestroyTask(ctx, &drivers.DestroyTaskRequest{TaskId: taskID})
	h.saw["destroy_running"] = status.Convert(err).Message()
	h.stopAndDestroy(ctx)
	await("the end of the output", func() bool { return stdout.isClosed() && stderr.isClosed() })
	h.saw["stdout"], h.saw["stderr"] = stdout.String(), stderr.String()
	_, err = h.driver.InspectTask(ctx, &drivers.InspectTaskRequest{TaskId: taskID})
	h.saw["unknown_task"] = status.Convert(err).Message()
	wrong := h.taskConfig()
	wrong.MsgpackDriverConfig = plug.Encode(map[string]interface{}{"comand": "x"})
	_, err = h.driver.StartTask(ctx, &drivers.StartTaskRequest{Task: wrong})
	h.saw["wrong_config"] = status.Convert(err).Message()
}

func (h *host) inspect(when string) {
	ctx, cancel := limited()
	defer cancel()
	answer, err := h.driver.InspectTask(ctx, &drivers.InspectTaskRequest{TaskId: taskID})
	check(err, "InspectTask")
	check(answer.Task.StartedAt.CheckValid(), "StartedAt")
	check(answer.Task.CompletedAt.CheckValid(), "CompletedAt")
	h.saw[when] = map[string]interface{}{
		"state": answer.Task.State.String(), "started": answer.Task.StartedAt.AsTime(),
		"completed": answer.Task.CompletedAt.AsTime(), "has_result": answer.Task.Result != nil,
	}
}

// useTask reads figures and runs commands inside.
func (h *host) useTask(ctx context.Context) {
	figures, err := h.driver.TaskStats(ctx, &drivers.TaskStatsRequest{
		TaskId: taskID, CollectionInterval: durationpb.New(100 * time.Millisecond),
	})
	check(err, "TaskStats")
	for range [2]int{} {
		answer, err := figures.Recv()
		check(err, "TaskStats")
		check(answer.Stats.Timestamp.CheckValid(), "timestamp of TaskStats")
		h.saw["rss"] = answer.Stats.AggResourceUsage.Memory.Rss
		h.saw["has_cpu"] = answer.Stats.AggResourceUsage.Cpu != nil
	}
	ran, err := h.driver.ExecTask(ctx, &drivers.ExecTaskRequest{
		TaskId: taskID, Command: []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 4"},
		Timeout: durationpb.New(callLimit),
	})
	check(err, "ExecTask")
	h.saw["exec"] = fmt.Sprintf("%d %q %q", ran.Result.ExitCode, ran.Stdout, ran.Stderr)
	stream, err := h.driver.ExecTaskStreaming(ctx)
	check(err, "ExecTaskStreaming")
	setup := &drivers.ExecTaskStreamingRequest_Setup{TaskId: taskID, Command: []string{"/bin/sh", "-c", "cat; exit 5"}}
	check(stream.Send(&drivers.ExecTaskStreamingRequest{Setup: setup}), "exec setup")
	for _, input := range []*drivers.ExecTaskStreamingIOOperation{{Data: []byte("through\n")}, {Close: true}} {
		check(stream.Send(&drivers.ExecTaskStreamingRequest{Stdin: input}), "exec stdin")
	}
	check(stream.CloseSend(), "exec close")
	heard := ""
	for {
		answer, err := stream.Recv()
		check(err, "exec answer")
		heard += string(answer.GetStdout().GetData())
		if answer.Exited {
			h.saw["exec_streaming"] = fmt.Sprintf("%d %q", answer.Result.ExitCode, heard)
			return
		}
	}
}

func (h *host) stopAndDestroy(ctx context.Context) {
	ended := make(chan string, 1)
	go func() {
		answer, err := h.driver.WaitTask(context.Background(), &drivers.WaitTaskRequest{TaskId: taskID})
		check(err, "WaitTask")
		ended <- fmt.Sprintf("%d %d %q", answer.Result.ExitCode, answer.Result.Signal, answer.Err)
	}()
	_, err := h.driver.StopTask(ctx, &drivers.StopTaskRequest{
		TaskId: taskID, Timeout: durationpb.New(10 * time.Second), Signal: "SIGTERM",
	})
	check(err, "StopTask")
	select {
	case h.saw["ended"] = <-ended:
	case <-ctx.Done():
		check(ctx.Err(), "WaitTask")
	}
	h.inspect("exited")
	_, err = h.driver.DestroyTask(ctx, &drivers.DestroyTaskRequest{TaskId: taskID})
	check(err, "DestroyTask")
}

// leave starts a task and writes down how to find it again; the plugin hears no word of the end.
func (h *host) leave() {
	handle, _, _ := h.start()
	data, err := proto.Marshal(handle)
	check(err, "handle")
	found := h.client.ReattachConfig()
	h.store("left.json", left{found.Addr.Network(), found.Addr.String(), found.Pid, data})
	h.saw["pid"] = found.Pid
}

// comeBack finds plugin and task again.
func (h *host) comeBack() {
	ctx, cancel := limited()
	defer cancel()
	var known left
	h.load("left.json", &known)
	address, err := net.ResolveUnixAddr(known.Network, known.Address)
	check(err, "address")
	config := h.clientConfig()
	config.Reattach = &plugin.ReattachConfig{
		Protocol: plugin.ProtocolGRPC, ProtocolVersion: 2, Addr: address, Pid: known.Pid,
	}
	h.connect(config)
	stdout := h.output("stdout")
	var handle drivers.TaskHandle
	check(proto.Unmarshal(known.Handle, &handle), "handle")
	_, err = h.driver.RecoverTask(ctx, &drivers.RecoverTaskRequest{TaskId: taskID, Handle: &handle})
	check(err, "RecoverTask")
	h.inspect("found")
	_, err = h.driver.SignalTask(ctx, &drivers.SignalTaskRequest{TaskId: taskID, Signal: "SIGUSR1"})
	check(err, "SignalTask")
	await("output after the return", func() bool { return strings.Contains(stdout.String(), "got usr1") })
	h.stopAndDestroy(ctx)
}
