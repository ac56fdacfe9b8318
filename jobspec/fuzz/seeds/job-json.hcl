{"variable": {"n": {"type": "number", "default": 2}},
 "job": {"j": {"priority": "${var.n + 50}", "meta": [{"a": "%{ if true }x%{ endif }"}],
  "group": [{"g": {"count": 1, "task": {"t": {"driver": "docker", "config": {"image": "x", "mount": [{"type": "bind"}]}}},
   "dynamic": {"network": {"for_each": [1], "content": {"port": {"http": {}}}}}}}]}}}
