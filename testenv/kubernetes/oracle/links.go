package main

import (
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	_ "k8s.io/kubernetes/cmd/kubelet/app" // has two of them
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

// Functions that the kubelet does not export.

//go:linkname hardEvictionReservation k8s.io/kubernetes/pkg/kubelet/cm.hardEvictionReservation
func hardEvictionReservation(thresholds []evictionapi.Threshold, capacity v1.ResourceList) v1.ResourceList

//go:linkname parseResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseResourceList(amounts map[string]string) (v1.ResourceList, error)
