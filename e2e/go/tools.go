//go:build tools

// The programs that write the wire package, pinned by go.mod.
package goplugin

import (
	_ "google.golang.org/grpc/cmd/protoc-gen-go-grpc"
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
)
