package main

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

// Reports read what the managers hold. In: managers. Out: values in an order that does not depend on chance.

// containerReport is what one container holds.
type containerReport struct {
	Name    string         `json:"name"`
	CPUs    string         `json:"cpus"`
	Memory  []memoryReport `json:"memory"`
	Devices []deviceReport `json:"devices"`
}

// podReport is what a pod holds as a whole.
type podReport struct {
	CPUs   string         `json:"cpus"`
	Memory []memoryReport `json:"memory"`
}

// memoryReport is a block of memory in a set of zones.
type memoryReport struct {
	Zones []int           `json:"zones"`
	Type  v1.ResourceName `json:"type"`
	Bytes uint64          `json:"bytes"`
}

// deviceReport is the devices of one resource.
type deviceReport struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
}

// stateReport is the answer to state.
type stateReport struct {
	CPU     cpuState                                `json:"cpu"`
	Memory  memoryState                             `json:"memory"`
	Devices map[types.UID]map[string][]deviceReport `json:"devices"`
}

type cpuState struct {
	Default  string                       `json:"default"`
	Assigned map[string]map[string]string `json:"assigned"`
	Pods     map[string]string            `json:"pods,omitempty"`
}

type memoryState struct {
	Machine  memorystate.NUMANodeMap              `json:"machine"`
	Assigned map[string]map[string][]memoryReport `json:"assigned"`
	Pods     map[string][]memoryReport            `json:"pods,omitempty"`
}

// reportPod reports a pod's containers in order, and the pod itself where the managers know pods.
func (s *rig) reportPod(pod *v1.Pod) ([]containerReport, *podReport) {
	k := s.kubelet
	reports := []containerReport{}
	for _, container := range containersOf(pod) {
		reports = append(reports, containerReport{
			Name:    container.Name,
			CPUs:    k.cpus.GetExclusiveCPUs(string(pod.UID), container.Name).String(),
			Memory:  blocks(k.memory.State().GetMemoryBlocks(string(pod.UID), container.Name)),
			Devices: s.devicesOf(pod.UID, container.Name),
		})
	}
	cpus, memory, ok := podResources(k, string(pod.UID))
	if !ok {
		return reports, nil
	}
	return reports, &podReport{CPUs: cpus, Memory: blocks(memory)}
}

// blocks puts blocks of memory in order: by type, then by zones.
func blocks(held []memorystate.Block) []memoryReport {
	reports := []memoryReport{}
	for _, block := range held {
		reports = append(reports, memoryReport{Zones: slices.Clone(block.NUMAAffinity), Type: block.Type,
			Bytes: block.Size})
	}
	slices.SortStableFunc(reports, func(a, b memoryReport) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), slices.Compare(a.Zones, b.Zones))
	})
	return reports
}

func (s *rig) devicesOf(uid types.UID, container string) []deviceReport {
	reports := []deviceReport{}
	for resource, instances := range s.kubelet.devices.GetDevices(string(uid), container) {
		report := deviceReport{Resource: resource, IDs: []string{}}
		for id := range instances {
			report.IDs = append(report.IDs, id)
		}
		slices.Sort(report.IDs)
		reports = append(reports, report)
	}
	slices.SortFunc(reports, func(a, b deviceReport) int { return cmp.Compare(a.Resource, b.Resource) })
	return reports
}

// hold remembers a pod that may hold devices, because the device manager has no list of them.
func (s *rig) hold(pod *v1.Pod) {
	if len(s.plugins) == 0 {
		return
	}
	if len(s.holders) > 1000 {
		for uid, holder := range s.holders {
			if len(s.podDevices(holder)) == 0 {
				delete(s.holders, uid)
			}
		}
	}
	if len(s.podDevices(pod)) > 0 {
		s.holders[pod.UID] = pod
	}
}

func (s *rig) podDevices(pod *v1.Pod) map[string][]deviceReport {
	held := map[string][]deviceReport{}
	for _, container := range containersOf(pod) {
		if devices := s.devicesOf(pod.UID, container.Name); len(devices) > 0 {
			held[container.Name] = devices
		}
	}
	return held
}

// state reports what all managers hold, of pods that are gone too as long as nobody has swept them away.
func (s *rig) state() stateReport {
	k := s.kubelet
	cpus, memory := k.cpus.State(), k.memory.State()
	report := stateReport{
		CPU:     cpuState{Default: cpus.GetDefaultCPUSet().String(), Assigned: map[string]map[string]string{}},
		Memory:  memoryState{Machine: memory.GetMachineState(), Assigned: map[string]map[string][]memoryReport{}},
		Devices: map[types.UID]map[string][]deviceReport{},
	}
	for uid, containers := range cpus.GetCPUAssignments() {
		report.CPU.Assigned[uid] = map[string]string{}
		for name, set := range containers {
			report.CPU.Assigned[uid][name] = set.String()
		}
	}
	for uid, containers := range memory.GetMemoryAssignments() {
		report.Memory.Assigned[uid] = map[string][]memoryReport{}
		for name, held := range containers {
			report.Memory.Assigned[uid][name] = blocks(held)
		}
	}
	report.CPU.Pods, report.Memory.Pods = allPodResources(k)
	for uid, pod := range s.holders {
		held := s.podDevices(pod)
		if len(held) == 0 {
			delete(s.holders, uid)
			continue
		}
		report.Devices[uid] = held
	}
	return report
}
