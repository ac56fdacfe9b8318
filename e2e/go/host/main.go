// Command host starts a driver plugin as a Nomad agent does, through hashicorp/go-plugin, and leads a task through its
// life. What it saw is printed as one JSON object; it ends with an error when a step fails.
//
//	host [-tls] [-config JSON] [-task JSON] FOLDER life COMMAND [ARG...]   start, use, end
//	host [-config JSON] [-task JSON] FOLDER leave COMMAND [ARG...]         start a task and end without a word to the plugin
//	host FOLDER return                                                     find plugin and task again, end both
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"yurt.test/goplugin/plug"
	"yurt.test/goplugin/wire/base"
	"yurt.test/goplugin/wire/drivers"
)

// host is one agent, and what it saw.
type host struct {
	folder string
	config map[string]interface{}
	task   map[string]interface{}
	client *plugin.Client
	base   base.BasePluginClient
	driver drivers.DriverClient
	stdout bytes.Buffer
	stderr bytes.Buffer
	saw    map[string]interface{}
}

func check(err error, step string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", step, err)
		plugin.CleanupClients()
		os.Exit(1)
	}
}

func (h *host) clientConfig() *plugin.ClientConfig {
	output, err := os.OpenFile(filepath.Join(h.folder, "host.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(err, "log")
	return &plugin.ClientConfig{
		HandshakeConfig:  plug.Handshake,
		Plugins:          plug.Clients,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: output, JSONFormat: true}),
		SyncStdout:       &h.stdout,
		SyncStderr:       &h.stderr,
		MinPort:          14000,
		MaxPort:          14512,
		Managed:          true,
		StartTimeout:     30 * time.Second,
	}
}

func (h *host) connect(config *plugin.ClientConfig) {
	h.client = plugin.NewClient(config)
	protocol, err := h.client.Client()
	check(err, "connect")
	check(protocol.Ping(), "ping")
	dispensed, err := protocol.Dispense("base")
	check(err, "dispense base")
	h.base = dispensed.(base.BasePluginClient)
	dispensed, err = protocol.Dispense("driver")
	check(err, "dispense driver")
	h.driver = dispensed.(drivers.DriverClient)
}

// end asks the plugin to end; go-plugin kills one that takes more than two seconds, and says so in its log.
func (h *host) end() {
	begin := time.Now()
	h.client.Kill()
	h.saw["killed_after_s"] = time.Since(begin).Seconds()
	h.saw["plugin_exited"] = h.client.Exited()
}

func (h *host) path(name string) string { return filepath.Join(h.folder, name) }

func (h *host) store(name string, value interface{}) {
	data, err := json.Marshal(value)
	check(err, name)
	check(os.WriteFile(h.path(name), data, 0o600), name)
}

func (h *host) load(name string, value interface{}) {
	data, err := os.ReadFile(h.path(name))
	check(err, name)
	check(json.Unmarshal(data, value), name)
}

// left is what an agent writes down to find a plugin and its task again.
type left struct {
	Network, Address string
	Pid              int
	Handle           []byte
}

func main() {
	encrypted := flag.Bool("tls", false, "speak mutual TLS")
	config := flag.String("config", "{}", "the config of the plugin block")
	task := flag.String("task", "{}", "what the task's config holds besides its command")
	flag.Parse()
	h := &host{folder: flag.Arg(0), saw: map[string]interface{}{}}
	check(json.Unmarshal([]byte(*config), &h.config), "config")
	check(json.Unmarshal([]byte(*task), &h.task), "task")
	start := func() {
		made := h.clientConfig()
		made.Cmd = exec.Command(flag.Arg(2), flag.Args()[3:]...)
		made.AutoMTLS = *encrypted
		h.connect(made)
		h.introduce()
	}
	switch flag.Arg(1) {
	case "life":
		start()
		h.live()
		h.end()
	case "leave":
		start()
		h.leave()
	case "return":
		h.comeBack()
		h.end()
	}
	h.saw["synced_stdout"], h.saw["synced_stderr"] = h.stdout.String(), h.stderr.String()
	check(json.NewEncoder(os.Stdout).Encode(h.saw), "report")
}
