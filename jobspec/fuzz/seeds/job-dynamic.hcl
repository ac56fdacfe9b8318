variable "image" { default = "web:1" }
locals { tags = [for n in ["a", "b", "c"] : upper(n)] }
job "web" {
  datacenters = ["dc1", "dc2"]
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  group "front" {
    count = 3
    network {
      port "http" { to = 8080 }
    }
    dynamic "task" {
      for_each = ["one", "two"]
      labels   = ["t-${task.value}"]
      content {
        driver = "docker"
        config {
          image = "${var.image}-${task.value}"
          args  = ["--port", "${NOMAD_PORT_http}", join(",", local.tags)]
        }
        template {
          destination = "local/config"
          data        = <<-EOF
            name = ${task.value}
            port = {{ env "NOMAD_PORT_http" }}
          EOF
        }
        resources {
          cpu    = 500
          memory = 256
        }
      }
    }
  }
}
