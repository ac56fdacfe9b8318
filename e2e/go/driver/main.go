// Command driver is a task driver for Nomad's plugin protocol, served by hashicorp/go-plugin as real drivers are. It
// runs commands, and writes the config that it decoded to local/config.json of the task.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"yurt.test/goplugin/plug"
	"yurt.test/goplugin/wire/base"
	"yurt.test/goplugin/wire/drivers"
)

// basePlugin says who the plugin is and takes its configuration.
type basePlugin struct {
	base.UnimplementedBasePluginServer
	driver *driver
}

func (b *basePlugin) PluginInfo(context.Context, *base.PluginInfoRequest) (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type: base.PluginType_DRIVER, PluginApiVersions: []string{"v0.1.0"}, PluginVersion: "v1.2.3", Name: "sample",
	}, nil
}

func (b *basePlugin) ConfigSchema(context.Context, *base.ConfigSchemaRequest) (*base.ConfigSchemaResponse, error) {
	return &base.ConfigSchemaResponse{Spec: pluginSpec}, nil
}

func (b *basePlugin) SetConfig(_ context.Context, asked *base.SetConfigRequest) (*base.SetConfigResponse, error) {
	var config pluginConfig
	if len(asked.MsgpackConfig) != 0 {
		if err := plug.Decode(asked.MsgpackConfig, &config); err != nil {
			return nil, err
		}
	}
	if len(config.Allowed) > 0 && config.Allowed[0] == "nothing" {
		return nil, fmt.Errorf("nothing is allowed here")
	}
	b.driver.configure(config)
	b.driver.logger.Warn("configured", "allowed", config.Allowed, "api", asked.PluginApiVersion)
	fmt.Println("printed to stdout after the handshake")
	fmt.Fprintln(os.Stderr, "printed to stderr after the handshake")
	return &base.SetConfigResponse{}, nil
}

func main() {
	logger := hclog.New(&hclog.LoggerOptions{Name: "sample", Level: hclog.Trace, Output: os.Stderr, JSONFormat: true})
	made := newDriver(logger)
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plug.Handshake,
		Plugins: plugin.PluginSet{
			"base": &plug.Service{Register: func(server *grpc.Server) {
				base.RegisterBasePluginServer(server, &basePlugin{driver: made})
			}},
			"driver": &plug.Service{Register: func(server *grpc.Server) {
				drivers.RegisterDriverServer(server, made)
			}},
		},
		GRPCServer: plugin.DefaultGRPCServer,
		Logger:     logger,
	})
}
