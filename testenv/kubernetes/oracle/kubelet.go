package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// nodeSpec is what a request says about the Node object: its labels, and capacity beyond the machine's (for instance
// ephemeral-storage, which is 100Gi unless given).
type nodeSpec struct {
	Labels   map[string]string `json:"labels"`
	Capacity v1.ResourceList   `json:"capacity"`
}

// kubelet is one life of a kubelet: made by a start or a restart, over the checkpoints in a folder.
//
// In: a machine, a configuration, the pods that are there. Out: the managers and the handlers of admission, wired and
// started as the kubelet does it. Never: a loop; whatever it does, it does within a call.
type kubelet struct {
	config   *kubeletconfig.KubeletConfiguration
	settings *cm.NodeConfig
	machine  *machineInfo
	spec     nodeSpec
	capacity v1.ResourceList
	node     *v1.Node

	topology   topologymanager.Manager
	devices    *devicemanager.ManagerImpl
	cpus       cpumanager.Manager
	memory     memorymanager.Manager
	statuses   status.Manager
	allocation allocation.Manager

	pods *pods
	// What config.SourcesReady says: false while a restarted kubelet admits the pods it finds.
	ready bool
	// Whether the node's totals are checked.
	totals bool
	// Checkpoints that are not written yet.
	checkpoints []*lateCheckpoints
	// Pods that a critical pod pushed out during the current request.
	preempted []types.UID
}

// newKubelet does what the kubelet does until it could take pods. The errors are those with which it would end.
func newKubelet(folder string, machine *machineInfo, raw []byte, spec nodeSpec, active *pods) (*kubelet, error) {
	config, err := loadConfig(raw)
	if err != nil {
		return nil, err
	}
	settings, err := nodeConfig(config, machine)
	if err != nil {
		return nil, err
	}
	settings.KubeletRootDir = folder
	k := &kubelet{config: config, settings: settings, machine: machine, spec: spec, pods: active, totals: true}
	k.capacity = cadvisor.CapacityFromMachineInfo(machine)
	if err := k.makeManagers(folder); err != nil {
		return nil, err
	}
	k.statuses = status.NewManager(nil, k.pods, nil, nil)
	k.allocation = newAllocationManager(k, folder)
	addHandlers(k)
	return k, nil
}

// makeManagers makes the managers in the order of NewContainerManager.
func (k *kubelet) makeManagers(folder string) (err error) {
	k.topology, err = newTopologyManager(k)
	if err != nil {
		return err
	}
	sockets := filepath.Join(folder, "device-plugins")
	if err := os.MkdirAll(sockets, 0o750); err != nil {
		return err
	}
	k.devices, err = newDeviceManager(filepath.Join(sockets, "kubelet.sock"), k)
	if err != nil {
		return err
	}
	addHintProvider(k, k.devices)
	k.cpus, err = newCPUManager(k)
	if err != nil {
		return err
	}
	addHintProvider(k, k.cpus)
	k.memory, err = newMemoryManager(k)
	if err != nil {
		return err
	}
	addHintProvider(k, k.memory)
	return nil
}

// start starts the managers in the order of the container manager's Start.
func (k *kubelet) start(containers containermap.ContainerMap, running sets.Set[string]) error {
	if err := startCPUManager(k, containers.Clone()); err != nil {
		return fmt.Errorf("start cpu manager error: %w", err)
	}
	if err := startMemoryManager(k, containers.Clone()); err != nil {
		return fmt.Errorf("start memory manager error: %w", err)
	}
	storage := resource.MustParse("100Gi")
	if given, ok := k.spec.Capacity[v1.ResourceEphemeralStorage]; ok {
		storage = given
	}
	k.capacity[v1.ResourceEphemeralStorage] = storage
	if err := k.validateAllocatable(); err != nil {
		return err
	}
	if err := startDeviceManager(k, containers.Clone(), running); err != nil {
		return err
	}
	k.checkpoints = []*lateCheckpoints{
		delay(k.cpus.State(), "checkpointManager"),
		delay(k.memory.State(), "checkpointManager"),
		delay(k.devices, "checkpointManager"),
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScaling) {
		k.checkpoints = append(k.checkpoints, delay(k.allocation, "allocated", "checkpointManager"))
	}
	return nil
}

// validateAllocatable refuses reservations above the capacity.
func (k *kubelet) validateAllocatable() error {
	var errors []string
	reserved := k.reservation()
	for _, name := range sortedNames(reserved) {
		total, amount := k.capacity[name], reserved[name]
		if total.Cmp(amount) < 0 {
			errors = append(errors, fmt.Sprintf("Resource %q has a reservation of %v but capacity of %v. "+
				"Expected capacity >= reservation.", name, amount, total))
		}
	}
	if len(errors) > 0 {
		return fmt.Errorf("invalid Node Allocatable configuration. %s", strings.Join(errors, " "))
	}
	return nil
}

// reservation is what the node keeps from pods: both reservations and the hard eviction thresholds.
func (k *kubelet) reservation() v1.ResourceList {
	sum := v1.ResourceList{}
	evicted := hardEvictionReservation(k.settings.HardEvictionThresholds, k.capacity)
	for name := range k.capacity {
		amount := resource.NewQuantity(0, resource.DecimalSI)
		for _, part := range []v1.ResourceList{k.settings.SystemReserved, k.settings.KubeReserved, evicted} {
			amount.Add(part[name])
		}
		if !amount.IsZero() {
			sum[name] = *amount
		}
	}
	return sum
}

// register connects plugins and takes their lists of devices.
func (k *kubelet) register(plugins []*devicePlugin) error {
	for _, plugin := range plugins {
		if err := connectPlugin(k, plugin); err != nil {
			return err
		}
	}
	return nil
}

// refreshNode computes the Node object's status as the kubelet reports it.
func (k *kubelet) refreshNode() error {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: k.spec.Labels}}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Status.Capacity = v1.ResourceList{}
	for name, amount := range k.spec.Capacity {
		node.Status.Capacity[name] = amount
	}
	if err := setMachineInfo(k, node); err != nil {
		return err
	}
	k.node = node
	return nil
}

// allocatable is the node's, as text.
func (k *kubelet) allocatable() map[string]string {
	texts := map[string]string{}
	for name, amount := range k.node.Status.Allocatable {
		texts[string(name)] = amount.String()
	}
	return texts
}

// stop ends the life; the checkpoints stay.
func (k *kubelet) stop() error {
	stopDeviceManager(k)
	for _, late := range k.checkpoints {
		if err := late.write(); err != nil {
			return err
		}
	}
	return nil
}

// evict is called for each pod that has to make room for a critical one.
func (k *kubelet) evict(pod *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
	k.pods.remove(pod.UID)
	k.preempted = append(k.preempted, pod.UID)
	return nil
}

// criticalPods is the handler that makes room for critical pods.
func (k *kubelet) criticalPods() *preemption.CriticalPodAdmissionHandler {
	return preemption.NewCriticalPodAdmissionHandler(k.allocatedPods, k.evict, recorder)
}

// allocatedPods are the active pods with the resources they were admitted with.
func (k *kubelet) allocatedPods() []*v1.Pod {
	active := k.pods.active()
	for i, pod := range active {
		active[i], _ = k.allocation.UpdatePodFromAllocation(pod)
	}
	return active
}

// getNode is the Node object, from the cache or from the API server alike.
func (k *kubelet) getNode(context.Context, bool) (*v1.Node, error) { return k.node, nil }

// AddSource is never called: `ready` decides.
func (k *kubelet) AddSource(string) {}

// AllReady says whether all sources of pods have been heard.
func (k *kubelet) AllReady() bool { return k.ready }

// GetPodStatus knows no status: only the CPU manager's loop asks, and it does not run.
func (k *kubelet) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// containerManager answers what handlers ask the container manager.
type containerManager struct {
	cm.ContainerManager
	kubelet *kubelet
}

// GetNodeConfig is what the container manager was made with.
func (m containerManager) GetNodeConfig() cm.NodeConfig { return *m.kubelet.settings }

// GetNodeAllocatableAbsolute is the capacity without both reservations, but with eviction thresholds.
func (m containerManager) GetNodeAllocatableAbsolute() v1.ResourceList {
	result := v1.ResourceList{}
	for name, total := range m.kubelet.capacity {
		amount := total.DeepCopy()
		amount.Sub(m.kubelet.settings.SystemReserved[name])
		amount.Sub(m.kubelet.settings.KubeReserved[name])
		if amount.Sign() < 0 {
			amount.Set(0)
		}
		result[name] = amount
	}
	return result
}

// containerRuntime is a runtime without swap.
type containerRuntime struct {
	kubecontainer.Runtime
}

// GetContainerSwapBehavior is what a node without swap says.
func (containerRuntime) GetContainerSwapBehavior(*v1.Pod, *v1.Container) kubetypes.SwapBehavior {
	return kubetypes.NoSwap
}

// totalsHandler asks the predicates unless the request does not want them.
type totalsHandler struct {
	lifecycle.PodAdmitHandler
	kubelet *kubelet
}

// recorder drops events.
var recorder = &record.FakeRecorder{}

// silent is a logger to nowhere.
var silent = klog.New(nowhere{})

func sortedNames(list v1.ResourceList) []v1.ResourceName {
	var names []v1.ResourceName
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
