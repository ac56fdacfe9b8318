package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"yurt.test/goplugin/wire/drivers"
)

func (d *driver) TaskStats(asked *drivers.TaskStatsRequest, stream drivers.Driver_TaskStatsServer) error {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return err
	}
	for {
		use := &drivers.TaskResourceUsage{
			Cpu: &drivers.CPUUsage{
				UserMode: 50, SystemMode: 25, Percent: 75,
				MeasuredFields: []drivers.CPUUsage_Fields{drivers.CPUUsage_USER_MODE, drivers.CPUUsage_PERCENT},
			},
			Memory: &drivers.MemoryUsage{
				Rss: 4 << 20, MeasuredFields: []drivers.MemoryUsage_Fields{drivers.MemoryUsage_RSS},
			},
		}
		err := stream.Send(&drivers.TaskStatsResponse{Stats: &drivers.TaskStats{
			Id: asked.TaskId, Timestamp: timestamppb.Now(), AggResourceUsage: use,
			ResourceUsageByPid: map[string]*drivers.TaskResourceUsage{found.pidText(): use},
		}})
		if err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-found.ended:
			return nil
		case <-time.After(asked.CollectionInterval.AsDuration()):
		}
	}
}

func codeOf(err error) int32 {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return int32(exit.ExitCode())
	}
	return 0
}

func (d *driver) ExecTask(ctx context.Context, asked *drivers.ExecTaskRequest) (*drivers.ExecTaskResponse, error) {
	found, err := d.find(asked.TaskId)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, asked.Timeout.AsDuration())
	defer cancel()
	command := exec.CommandContext(ctx, asked.Command[0], asked.Command[1:]...)
	command.Env = environment(found.config)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: credential(found.config)}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	code := codeOf(command.Run())
	return &drivers.ExecTaskResponse{
		Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Result: &drivers.ExitResult{ExitCode: code},
	}, nil
}

// sender writes one output of a command to the stream, of which gRPC allows one sender at a time.
type sender struct {
	mutex  *sync.Mutex
	stream drivers.Driver_ExecTaskStreamingServer
	wrap   func(*drivers.ExecTaskStreamingIOOperation) *drivers.ExecTaskStreamingResponse
}

func (s *sender) Write(data []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	copied := append([]byte(nil), data...)
	return len(data), s.stream.Send(s.wrap(&drivers.ExecTaskStreamingIOOperation{Data: copied}))
}

func (d *driver) ExecTaskStreaming(stream drivers.Driver_ExecTaskStreamingServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.Setup == nil {
		return status.Error(codes.InvalidArgument, "the first message has no setup")
	}
	found, err := d.find(first.Setup.TaskId)
	if err != nil {
		return err
	}
	command := exec.CommandContext(stream.Context(), first.Setup.Command[0], first.Setup.Command[1:]...)
	command.Env = environment(found.config)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: credential(found.config)}
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	command.Stdout = &sender{&mutex, stream, func(op *drivers.ExecTaskStreamingIOOperation) *drivers.ExecTaskStreamingResponse {
		return &drivers.ExecTaskStreamingResponse{Stdout: op}
	}}
	command.Stderr = &sender{&mutex, stream, func(op *drivers.ExecTaskStreamingIOOperation) *drivers.ExecTaskStreamingResponse {
		return &drivers.ExecTaskStreamingResponse{Stderr: op}
	}}
	if err := command.Start(); err != nil {
		return err
	}
	go feed(stream, input)
	code := codeOf(command.Wait())
	closed := &drivers.ExecTaskStreamingIOOperation{Close: true}
	if err := stream.Send(&drivers.ExecTaskStreamingResponse{Stdout: closed}); err != nil {
		return err
	}
	return stream.Send(&drivers.ExecTaskStreamingResponse{
		Exited: true, Result: &drivers.ExitResult{ExitCode: code},
	})
}

func feed(stream drivers.Driver_ExecTaskStreamingServer, input io.WriteCloser) {
	defer input.Close()
	for {
		asked, err := stream.Recv()
		if err != nil {
			return
		}
		if asked.Stdin == nil {
			continue
		}
		if _, err := input.Write(asked.Stdin.Data); err != nil || asked.Stdin.Close {
			return
		}
	}
}
