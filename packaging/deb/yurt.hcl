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

# Without access control every user of this machine reaches the API. With this driver each of them could run commands as
# root: turn on access control (`acl { enabled = true }`) first.
# plugin "raw_exec" {
#   config {
#     enabled = true
#   }
# }

telemetry {
  prometheus_metrics         = true
  publish_node_metrics       = true
  publish_allocation_metrics = true
}
