// Package deploy checks the files by which others run Siding: the Dockerfile, the compose file and the
// manifests for Kubernetes. Each is read by the parser of its own project, in a module of its own. No
// container runs here.
package deploy
