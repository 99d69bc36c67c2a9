# A TPU VM with tpuwatch, and the service account that it runs as. Each worker installs the package at its boot.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.30"
    }
  }
}

variable "project" { type = string }
variable "zone" { type = string }
variable "name" { type = string }

variable "accelerator_type" {
  type    = string
  default = "v5litepod-8"
}

variable "runtime_version" {
  type    = string
  default = "v2-alpha-tpuv5-lite"
}

variable "package" {
  description = "The Debian package: gs://BUCKET/OBJECT, which the service account may read"
  type        = string
}

variable "package_sha256" {
  type    = string
  default = ""
}

variable "config" {
  description = "The configuration of tpuwatch; empty for the defaults"
  type        = string
  default     = ""
}

locals {
  roles = {
    tpuwatch        = yamldecode(file("${path.module}/../iam/role.yaml"))
    tpuwatchRestart = yamldecode(file("${path.module}/../iam/role-restart.yaml"))
  }
}

resource "google_project_iam_custom_role" "tpuwatch" {
  for_each    = local.roles
  project     = var.project
  role_id     = each.key
  title       = each.value.title
  description = each.value.description
  permissions = each.value.includedPermissions
}

resource "google_service_account" "node" {
  project      = var.project
  account_id   = "${var.name}-tpu"
  display_name = "TPU VM ${var.name}"
}

resource "google_project_iam_member" "node" {
  project = var.project
  role    = google_project_iam_custom_role.tpuwatch["tpuwatch"].id
  member  = google_service_account.node.member
}

resource "google_tpu_v2_vm" "node" {
  project          = var.project
  zone             = var.zone
  name             = var.name
  accelerator_type = var.accelerator_type
  runtime_version  = var.runtime_version

  service_account {
    email = google_service_account.node.email
    scope = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  metadata = merge(
    {
      startup-script = file("${path.module}/../startup-script.sh")
      tpuwatch-deb   = var.package
    },
    var.package_sha256 == "" ? {} : { tpuwatch-sha256 = var.package_sha256 },
    var.config == "" ? {} : { tpuwatch-config = var.config },
  )
}
