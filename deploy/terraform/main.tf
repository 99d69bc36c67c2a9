# A TPU VM with tpuwatch: each worker installs the package at its boot. project/ has what all of a project share.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google-beta = { # google has no google_tpu_v2_vm
      source  = "hashicorp/google-beta"
      version = ">= 5.30"
    }
  }
}

variable "project" { type = string }
variable "zone" { type = string }
variable "name" { type = string }

variable "service_account" {
  description = "The e-mail address of the account that the node runs as: service_account of project/, or one with its rights"
  type        = string
}

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

resource "google_tpu_v2_vm" "node" {
  provider         = google-beta
  project          = var.project
  zone             = var.zone
  name             = var.name
  accelerator_type = var.accelerator_type
  runtime_version  = var.runtime_version

  service_account {
    email = var.service_account
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
