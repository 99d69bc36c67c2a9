# What all TPU VMs of a project with tpuwatch share, once for the project: the roles, and the service account that they
# run as, which may see nodes and read the package.

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

variable "package_bucket" {
  description = "The bucket with the Debian package: BUCKET of gs://BUCKET/OBJECT; empty for a package from https://"
  type        = string
}

locals {
  roles = {
    tpuwatch        = yamldecode(file("${path.module}/../../iam/role.yaml"))
    tpuwatchRestart = yamldecode(file("${path.module}/../../iam/role-restart.yaml")) # for a watcher
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
  account_id   = "tpuwatch-node"
  display_name = "TPU VMs with tpuwatch"
}

resource "google_project_iam_member" "node" {
  project = var.project
  role    = google_project_iam_custom_role.tpuwatch["tpuwatch"].id
  member  = google_service_account.node.member
}

resource "google_storage_bucket_iam_member" "package" {
  count  = var.package_bucket == "" ? 0 : 1
  bucket = var.package_bucket
  role   = "roles/storage.objectViewer"
  member = google_service_account.node.member
}

output "service_account" { value = google_service_account.node.email }
