//go:build tools

// Package tools names the programs of etcd that the tests run. `go install` refuses their modules by name, because
// these replace some of their libraries.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
