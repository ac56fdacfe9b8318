# The agent of this machine: a server and a client that only this machine can reach. `man yurt-agent` names the flags,
# docs/reference/agent-configuration.md every key. Check a change with `yurt config validate /etc/yurt.d`.
data_dir  = "/var/lib/yurt"
bind_addr = "127.0.0.1"

server {
  enabled          = true
  bootstrap_expect = 1
}

client {
  enabled = true
}

plugin "raw_exec" {
  config {
    enabled = true # runs commands as root, without isolation
  }
}

telemetry {
  prometheus_metrics         = true
  publish_node_metrics       = true
  publish_allocation_metrics = true
}
