"""Foreign programs that tests start: etcd, container engines, registries, CSI plugins, guests and networks."""
