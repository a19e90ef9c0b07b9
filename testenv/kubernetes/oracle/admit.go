//go:build !k137

package main

import "k8s.io/kubernetes/pkg/kubelet/lifecycle"

// Admit asks the predicates, if the request wants them.
func (h totalsHandler) Admit(attributes *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if !h.kubelet.totals {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return h.PodAdmitHandler.Admit(attributes)
}
