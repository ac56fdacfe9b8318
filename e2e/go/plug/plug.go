// Package plug is what both sides of Nomad's plugin protocol agree on, in the terms of hashicorp/go-plugin.
package plug

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/go-msgpack/codec"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"yurt.test/goplugin/wire/base"
	"yurt.test/goplugin/wire/drivers"
)

// Handshake is how a host and a plugin know each other.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  2,
	MagicCookieKey:   "NOMAD_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
}

// Service is a gRPC service of a plugin: Register offers it, Dispense makes the other end.
type Service struct {
	plugin.NetRPCUnsupportedPlugin
	Register func(*grpc.Server)
	Dispense func(*grpc.ClientConn) interface{}
}

// GRPCServer offers the service.
func (s *Service) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	s.Register(server)
	return nil
}

// GRPCClient makes the client's end.
func (s *Service) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (interface{}, error) {
	return s.Dispense(conn), nil
}

// Clients are the services as a host dispenses them.
var Clients = plugin.PluginSet{
	"base":   &Service{Dispense: func(conn *grpc.ClientConn) interface{} { return base.NewBasePluginClient(conn) }},
	"driver": &Service{Dispense: func(conn *grpc.ClientConn) interface{} { return drivers.NewDriverClient(conn) }},
}

func handle() *codec.MsgpackHandle {
	made := &codec.MsgpackHandle{}
	made.RawToString = true
	made.MapType = reflect.TypeOf(map[string]interface{}(nil))
	return made
}

// Encode writes a value as msgpack.
func Encode(value interface{}) []byte {
	var made bytes.Buffer
	if err := codec.NewEncoder(&made, handle()).Encode(value); err != nil {
		panic(fmt.Sprintf("%T cannot be encoded: %v", value, err))
	}
	return made.Bytes()
}

// Decode reads msgpack into a value.
func Decode(data []byte, value interface{}) error {
	return codec.NewDecoder(bytes.NewReader(data), handle()).Decode(value)
}
