package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"yurt.test/goplugin/plug"
	"yurt.test/goplugin/wire/drivers"
	"yurt.test/goplugin/wire/structs"
)

const fingerprintPeriod = 5 * time.Second

var errNotFound = errors.New("task not found for given id")

var signals = map[string]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGUSR1": syscall.SIGUSR1,
}

// driver offers all but Init and Shutdown, which drivers of older builds lack.
type driver struct {
	drivers.UnimplementedDriverServer
	logger hclog.Logger
	events chan *drivers.DriverTaskEvent

	mutex  sync.Mutex
	config pluginConfig
	tasks  map[string]*task
}

func newDriver(logger hclog.Logger) *driver {
	return &driver{logger: logger, events: make(chan *drivers.DriverTaskEvent, 16), tasks: map[string]*task{}}
}

func (d *driver) configure(config pluginConfig) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.config = config
}

func (d *driver) find(id string) (*task, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if found := d.tasks[id]; found != nil {
		return found, nil
	}
	return nil, errNotFound
}

func (d *driver) keep(id string, made *task) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.tasks[id] = made
}

func (d *driver) TaskConfigSchema(
	context.Context, *drivers.TaskConfigSchemaRequest,
) (*drivers.TaskConfigSchemaResponse, error) {
	return &drivers.TaskConfigSchemaResponse{Spec: taskSpec}, nil
}

func (d *driver) Capabilities(context.Context, *drivers.CapabilitiesRequest) (*drivers.CapabilitiesResponse, error) {
	return &drivers.CapabilitiesResponse{Capabilities: &drivers.DriverCapabilities{
		SendSignals: true, Exec: true, FsIsolation: drivers.DriverCapabilities_NONE,
		MountConfigs: drivers.DriverCapabilities_ANY_MOUNTS, DynamicWorkloadUsers: true,
		NetworkIsolationModes: []drivers.NetworkIsolationSpec_NetworkIsolationMode{
			drivers.NetworkIsolationSpec_HOST, drivers.NetworkIsolationSpec_GROUP,
		},
	}}, nil
}

func (d *driver) fingerprint() *drivers.FingerprintResponse {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.config.Enabled {
		return &drivers.FingerprintResponse{
			Health: drivers.FingerprintResponse_UNDETECTED, HealthDescription: "disabled",
		}
	}
	return &drivers.FingerprintResponse{
		Health: drivers.FingerprintResponse_HEALTHY, HealthDescription: "Healthy",
		Attributes: map[string]*structs.Attribute{
			"driver.sample":         {Value: &structs.Attribute_BoolVal{BoolVal: true}},
			"driver.sample.version": {Value: &structs.Attribute_StringVal{StringVal: "1.2.3"}},
			"driver.sample.memory":  {Value: &structs.Attribute_IntVal{IntVal: 64}, Unit: "MiB"},
			"driver.sample.load":    {Value: &structs.Attribute_FloatVal{FloatVal: 0.5}},
		},
	}
}

func (d *driver) Fingerprint(_ *drivers.FingerprintRequest, stream drivers.Driver_FingerprintServer) error {
	for {
		if err := stream.Send(d.fingerprint()); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(fingerprintPeriod):
		}
	}
}

func (d *driver) tell(config *drivers.TaskConfig, message string) {
	d.events <- &drivers.DriverTaskEvent{
		TaskId: config.Id, AllocId: config.AllocId, TaskName: config.Name, Timestamp: timestamppb.Now(),
		Message: message, Annotations: map[string]string{"image": "none"},
	}
}

func (d *driver) TaskEvents(_ *drivers.TaskEventsRequest, stream drivers.Driver_TaskEventsServer) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case event := <-d.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

func (d *driver) StartTask(_ context.Context, asked *drivers.StartTaskRequest) (*drivers.StartTaskResponse, error) {
	var config taskConfig
	if err := plug.Decode(asked.Task.MsgpackDriverConfig, &config); err != nil {
		return refused(drivers.StartTaskResponse_FATAL, "failed to decode driver config: "+err.Error()), nil
	}
	switch config.Fail {
	case "retry":
		return refused(drivers.StartTaskResponse_RETRY, "the registry is busy"), nil
	case "error":
		return nil, recoverable("the engine is away")
	}
	if _, err := d.find(asked.Task.Id); err == nil {
		return refused(drivers.StartTaskResponse_FATAL, "this task runs already"), nil
	}
	d.tell(asked.Task, "Downloading")
	if err := writeConfig(asked.Task, config); err != nil {
		return refused(drivers.StartTaskResponse_FATAL, err.Error()), nil
	}
	made, err := startTask(asked.Task, config)
	if err != nil {
		return refused(drivers.StartTaskResponse_FATAL, err.Error()), nil
	}
	d.keep(asked.Task.Id, made)
	handle := &drivers.TaskHandle{
		Version: 1, Config: asked.Task, State: drivers.TaskState_RUNNING, DriverState: plug.Encode(made.state),
	}
	return &drivers.StartTaskResponse{Handle: handle, NetworkOverride: networkOf(config.Address)}, nil
}

// networkOf is the network of a task that has an address of its own.
func networkOf(address string) *drivers.NetworkOverride {
	if address == "" {
		return nil
	}
	return &drivers.NetworkOverride{Addr: address, PortMap: map[string]int32{"http": 80}}
}

func refused(result drivers.StartTaskResponse_Result, text string) *drivers.StartTaskResponse {
	return &drivers.StartTaskResponse{Result: result, DriverErrorMsg: text}
}

func recoverable(text string) error {
	made, err := status.New(codes.Unknown, text).WithDetails(&structs.RecoverableError{Recoverable: true})
	if err != nil {
		return err
	}
	return made.Err()
}

// writeConfig leaves what was decoded for a test to compare.
func writeConfig(asked *drivers.TaskConfig, config taskConfig) error {
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(asked.AllocDir, asked.Name, "local", "config.json"), data, 0o644)
}

func (d *driver) RecoverTask(
	_ context.Context, asked *drivers.RecoverTaskRequest,
) (*drivers.RecoverTaskResponse, error) {
	if _, err := d.find(asked.TaskId); err == nil {
		return &drivers.RecoverTaskResponse{}, nil
	}
	var state taskState
	if err := plug.Decode(asked.Handle.DriverState, &state); err != nil {
		return nil, err
	}
	found, err := recoverTask(asked.Handle.Config, state)
	if err != nil {
		return nil, err
	}
	d.keep(asked.TaskId, found)
	d.logger.Info("recovered", "task", asked.TaskId, "pid", state.Pid)
	return &drivers.RecoverTaskResponse{}, nil
}

func (d *driver) WaitTask(ctx context.Context, asked *drivers.WaitTaskRequest) (*drivers.WaitTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-found.ended:
		return &drivers.WaitTaskResponse{Result: found.exitResult(), Err: found.problem}, nil
	}
}

func (d *driver) StopTask(_ context.Context, asked *drivers.StopTaskRequest) (*drivers.StopTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	number, known := signals[asked.Signal]
	if !known {
		number = syscall.SIGINT
	}
	found.stop(number, asked.Timeout.AsDuration())
	return &drivers.StopTaskResponse{}, nil
}

func (d *driver) DestroyTask(
	_ context.Context, asked *drivers.DestroyTaskRequest,
) (*drivers.DestroyTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	if found.isRunning() && !asked.Force {
		return nil, errors.New("cannot destroy running task")
	}
	found.stop(syscall.SIGKILL, 0)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.tasks, asked.TaskId)
	return &drivers.DestroyTaskResponse{}, nil
}

func (d *driver) InspectTask(
	_ context.Context, asked *drivers.InspectTaskRequest,
) (*drivers.InspectTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	return &drivers.InspectTaskResponse{
		Task:   found.status(),
		Driver: &drivers.TaskDriverStatus{Attributes: map[string]string{"pid": found.pidText()}},
	}, nil
}

func (d *driver) SignalTask(_ context.Context, asked *drivers.SignalTaskRequest) (*drivers.SignalTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	number, known := signals[asked.Signal]
	if !known {
		return nil, status.Errorf(codes.InvalidArgument, "signal %q is not known", asked.Signal)
	}
	return &drivers.SignalTaskResponse{}, found.signal(number)
}
