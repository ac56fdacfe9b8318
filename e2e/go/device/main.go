// Command device is a device plugin for Nomad's plugin protocol, served by hashicorp/go-plugin: two boards, one of
// which is unhealthy.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"yurt.test/goplugin/plug"
	"yurt.test/goplugin/wire/base"
	"yurt.test/goplugin/wire/device"
	spec "yurt.test/goplugin/wire/hclspec"
	"yurt.test/goplugin/wire/structs"
)

// boards is all of the plugin; it takes no configuration.
type boards struct {
	base.UnimplementedBasePluginServer
	device.UnimplementedDevicePluginServer
}

func (b *boards) PluginInfo(context.Context, *base.PluginInfoRequest) (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type: base.PluginType_DEVICE, PluginApiVersions: []string{"v0.1.0"}, PluginVersion: "v0.1.0", Name: "board",
	}, nil
}

func (b *boards) ConfigSchema(context.Context, *base.ConfigSchemaRequest) (*base.ConfigSchemaResponse, error) {
	return &base.ConfigSchemaResponse{Spec: &spec.Spec{}}, nil
}

func (b *boards) SetConfig(context.Context, *base.SetConfigRequest) (*base.SetConfigResponse, error) {
	return &base.SetConfigResponse{}, nil
}

func (b *boards) Fingerprint(_ *device.FingerprintRequest, stream device.DevicePlugin_FingerprintServer) error {
	err := stream.Send(&device.FingerprintResponse{DeviceGroup: []*device.DeviceGroup{{
		Vendor: "acme", DeviceType: "fpga", DeviceName: "B7",
		Devices: []*device.DetectedDevice{
			{ID: "left", Healthy: true, HwLocality: &device.DeviceLocality{PciBusId: "0000:01:00.0"}},
			{ID: "right", HealthDescription: "too hot"},
		},
		Attributes: map[string]*structs.Attribute{
			"memory": {Value: &structs.Attribute_IntVal{IntVal: 8}, Unit: "GiB"},
		},
	}}})
	if err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (b *boards) Reserve(_ context.Context, asked *device.ReserveRequest) (*device.ReserveResponse, error) {
	for _, id := range asked.DeviceIds {
		if id != "left" {
			return nil, fmt.Errorf("unknown device %q", id)
		}
	}
	return &device.ReserveResponse{ContainerRes: &device.ContainerReservation{
		Envs: map[string]string{"ACME_BOARDS": strings.Join(asked.DeviceIds, ",")},
	}}, nil
}

func (b *boards) Stats(asked *device.StatsRequest, stream device.DevicePlugin_StatsServer) error {
	for {
		used := &structs.StatValue{
			IntNumeratorVal: wrapperspb.Int64(3), IntDenominatorVal: wrapperspb.Int64(8), Unit: "GiB", Desc: "Memory in use",
		}
		figures := &device.DeviceStats{Summary: used, Timestamp: timestamppb.Now()}
		err := stream.Send(&device.StatsResponse{Groups: []*device.DeviceGroupStats{{
			Vendor: "acme", Type: "fpga", Name: "B7", InstanceStats: map[string]*device.DeviceStats{"left": figures},
		}}})
		if err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(asked.CollectionInterval.AsDuration()):
		}
	}
}

func main() {
	made := &boards{}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plug.Handshake,
		Plugins: plugin.PluginSet{
			"base": &plug.Service{Register: func(server *grpc.Server) { base.RegisterBasePluginServer(server, made) }},
			"device": &plug.Service{Register: func(server *grpc.Server) {
				device.RegisterDevicePluginServer(server, made)
			}},
		},
		GRPCServer: plugin.DefaultGRPCServer,
		Logger:     hclog.New(&hclog.LoggerOptions{Name: "board", Output: os.Stderr, JSONFormat: true}),
	})
}
