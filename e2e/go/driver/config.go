package main

import (
	spec "yurt.test/goplugin/wire/hclspec"
)

// pluginConfig is the config of the agent's plugin block.
type pluginConfig struct {
	Enabled bool     `codec:"enabled"`
	Allowed []string `codec:"allowed"`
	GC      struct {
		Container  bool   `codec:"container"`
		ImageDelay string `codec:"image_delay"`
	} `codec:"gc"`
}

var pluginSpec = object(map[string]*spec.Spec{
	"enabled": withDefault(attr("enabled", "bool"), "true"),
	"allowed": attr("allowed", "list(string)"),
	"gc": withDefault(
		block("gc", object(map[string]*spec.Spec{
			"container":   withDefault(attr("container", "bool"), "true"),
			"image_delay": withDefault(attr("image_delay", "string"), `"3m"`),
		})),
		`{ container = true }`,
	),
})

// joined is a map that a job file may write as several blocks.
type joined []map[string]string

type mountConfig struct {
	Target   string            `codec:"target" json:"target"`
	ReadOnly bool              `codec:"readonly" json:"readonly"`
	Options  map[string]string `codec:"options" json:"options"`
}

type loggingConfig struct {
	Driver string `codec:"driver" json:"driver"`
	Config joined `codec:"config" json:"config"`
}

// taskConfig is the config of a task, one option of each kind that drivers use.
type taskConfig struct {
	Command string                 `codec:"command" json:"command"`
	Args    []string               `codec:"args" json:"args"`
	Limit   int64                  `codec:"limit" json:"limit"`
	Ratio   float64                `codec:"ratio" json:"ratio"`
	Loud    bool                   `codec:"loud" json:"loud"`
	Labels  joined                 `codec:"labels" json:"labels"`
	Ports   []map[string]int       `codec:"port_map" json:"port_map"`
	Sysctl  map[string]string      `codec:"sysctl" json:"sysctl"`
	Logging loggingConfig          `codec:"logging" json:"logging"`
	Mounts  []mountConfig          `codec:"mount" json:"mount"`
	Devices []mountConfig          `codec:"devices" json:"devices"`
	Named   map[string]mountConfig `codec:"named" json:"named"`
	Address string                 `codec:"address" json:"address"`
	Fail    string                 `codec:"fail" json:"fail"`
}

var mountSpec = object(map[string]*spec.Spec{
	"target":   attr("target", "string"),
	"readonly": withDefault(attr("readonly", "bool"), "false"),
	"options": {Block: &spec.Spec_BlockAttrs{
		BlockAttrs: &spec.BlockAttrs{Name: "options", Type: "string"},
	}},
})

var taskSpec = object(map[string]*spec.Spec{
	"command":  {Block: &spec.Spec_Attr{Attr: &spec.Attr{Name: "command", Type: "string", Required: true}}},
	"args":     attr("args", "list(string)"),
	"limit":    withDefault(attr("limit", "number"), "512"),
	"ratio":    attr("ratio", "number"),
	"loud":     withDefault(attr("loud", "bool"), "true"),
	"labels":   attr("labels", "list(map(string))"),
	"port_map": attr("port_map", "list(map(number))"),
	"sysctl": {Block: &spec.Spec_BlockAttrs{
		BlockAttrs: &spec.BlockAttrs{Name: "sysctl", Type: "string"},
	}},
	"logging": block("logging", object(map[string]*spec.Spec{
		"driver": attr("driver", "string"),
		"config": attr("config", "list(map(string))"),
	})),
	"mount":   {Block: &spec.Spec_BlockList{BlockList: &spec.BlockList{Name: "mount", Nested: mountSpec}}},
	"devices": {Block: &spec.Spec_BlockSet{BlockSet: &spec.BlockSet{Name: "devices", Nested: mountSpec}}},
	"named": {Block: &spec.Spec_BlockMap{
		BlockMap: &spec.BlockMap{Name: "named", Labels: []string{"name"}, Nested: mountSpec},
	}},
	"address": attr("address", "string"),
	"fail":    attr("fail", "string"),
})

func object(attributes map[string]*spec.Spec) *spec.Spec {
	return &spec.Spec{Block: &spec.Spec_Object{Object: &spec.Object{Attributes: attributes}}}
}

func attr(name, kind string) *spec.Spec {
	return &spec.Spec{Block: &spec.Spec_Attr{Attr: &spec.Attr{Name: name, Type: kind}}}
}

func block(name string, nested *spec.Spec) *spec.Spec {
	return &spec.Spec{Block: &spec.Spec_BlockValue{BlockValue: &spec.Block{Name: name, Nested: nested}}}
}

func withDefault(primary *spec.Spec, literal string) *spec.Spec {
	value := &spec.Spec{Block: &spec.Spec_Literal{Literal: &spec.Literal{Value: literal}}}
	return &spec.Spec{Block: &spec.Spec_Default{Default: &spec.Default{Primary: primary, Default: value}}}
}
