job "full" {
  name        = "Full"
  type        = "batch"
  datacenters = ["dc1", "dc2"]
  meta = {
    "a.b" = "dotted"
    plain = "x"
  }
  constraint {
    distinct_hosts = true
  }
  constraint {
    attribute = "${meta.rack}"
    operator  = "regexp"
    value     = "^r[0-9]+$"
  }
  periodic {
    crons = ["@daily"]
  }
  group "g" {
    count          = 2
    shutdown_delay = "1m30s"
    network {
      mode = "bridge"
      port "http" {
        static = 8080
      }
      port "db" {}
    }
    volume "data" {
      type   = "host"
      source = "data"
    }
    scaling {
      max = 5
      policy {
        cooldown = "1m"
      }
    }
    service {
      name = "web"
      port = "http"
      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "1500ms"
        header {
          Accept = ["a", "b"]
        }
      }
    }
    task "t" {
      driver = "docker"
      config {
        image  = "web:1"
        labels = { "a.b" = "c", d = { e = 1 } }
        mount {
          type   = "bind"
          source = "/x"
        }
        mount {
          type = "tmpfs"
        }
        ports = ["http"]
        ratio = 1.5
      }
      env {
        PATH_LIKE = "$${HOME}/bin:%%{x}:${NOMAD_TASK_DIR}"
        QUOTED    = "a "b" \\ \t c"
      }
      template {
        destination = "local/a"
        splay       = "1s"
        data        = <<EOT
{{ range service "db" }}
  address = $${not_ours} {{ .Address }}
{{ end }}
EOT
      }
      identity {
        name = "vault"
        aud  = ["v"]
      }
      identity {
        env = true
      }
      scaling "cpu" {
        max = 1000
      }
      resources {
        cpu = 100
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
