//go:build k134 || k135

package main

import memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"

// podResources says that no pod has anything as a whole.
func podResources(*kubelet, string) (string, []memorystate.Block, bool) { return "", nil, false }

func allPodResources(*kubelet) (map[string]string, map[string][]memoryReport) { return nil, nil }
