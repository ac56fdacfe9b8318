variable "names" {
  type    = list(string)
  default = ["a", "b"]
  validation {
    condition     = length(var.names) > 0
    error_message = "Give a name."
  }
}
variable "shape" {
  type = object({ n = number, tags = optional(map(string)) })
  default = { n = 1.5 }
}
locals {
  upper  = { for i, n in var.names : n => upper(n) if i < 9 }
  groups = { for n in var.names : strlen(n) => n... }
  text = <<-EOT
    %{ for n in var.names ~}
    ${n} is ${local.upper[n]}
    %{ endfor ~}
  EOT
}
job "f" {
  meta {
    a = jsonencode(merge(local.upper, { x = [1, null, true] }))
    b = join(",", sort(concat(var.names, ["c"])))
    c = format("%05.2f|%-4s|%q", var.shape.n * 2 + 1, "x", "y")
    d = yamlencode(yamldecode("a: [1, {b: c}]"))
    e = regex_replace("abc", "(b)", "<$1>")
    f = cidrsubnet("10.0.0.0/8", 8, 2)
    g = formatdate("YYYY-MM-DD", "2020-01-02T03:04:05Z")
    h = try(var.shape.nope, can(1 + 1) ? "y" : "n")
    i = local.groups[1][*][0]
    j = csvdecode("a,b\n1,2")[0].a
  }
  group "g" {
    count = length(var.names)
    task "t" {
      driver = "docker"
      template {
        data        = local.text
        destination = "local/x"
      }
    }
  }
}
