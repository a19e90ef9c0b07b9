package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
)

// rig is a machine with a kubelet, from one start to the next.
//
// In: requests. Out: what the kubelet decided, and what its managers hold. Never: an answer from memory; each is read
// from the managers.
type rig struct {
	folder  string
	machine *machineInfo
	raw     json.RawMessage
	spec    nodeSpec
	plugins []*devicePlugin
	pods    *pods
	kubelet *kubelet
	// Pods whose containers were started: the runtime has them.
	running map[types.UID]bool
	// Pods that the device manager may have devices of.
	holders map[types.UID]*v1.Pod
}

// rejection is a pod that a restarted kubelet did not admit again.
type rejection struct {
	UID     types.UID `json:"uid"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// verdict is the answer to admit.
type verdict struct {
	Admitted   bool              `json:"admitted"`
	Reason     string            `json:"reason"`
	Message    string            `json:"message"`
	Containers []containerReport `json:"containers"`
	Pod        *podReport        `json:"pod,omitempty"`
	Preempted  []types.UID       `json:"preempted,omitempty"`
	StartError string            `json:"startError,omitempty"`
	// What a rejected pod still holds.
	Held []containerReport `json:"held,omitempty"`
}

// resizing is the answer to resize.
type resizing struct {
	Resized    bool              `json:"resized"`
	Condition  string            `json:"condition"`
	Reason     string            `json:"reason"`
	Message    string            `json:"message"`
	Containers []containerReport `json:"containers"`
	Pod        *podReport        `json:"pod,omitempty"`
}

// done is the answer of requests that have none.
type done struct {
	OK bool `json:"ok"`
}

func parseMachine(raw json.RawMessage) (*machineInfo, error) {
	machine := &machineInfo{}
	if len(raw) == 0 {
		return nil, errors.New("start: no machine")
	}
	if err := json.Unmarshal(raw, machine); err != nil {
		return nil, fmt.Errorf("start: machine: %w", err)
	}
	return machine, nil
}

// newRig starts a kubelet that has never run on its machine.
func newRig(folder string, machine *machineInfo, r *request) (*rig, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	s := &rig{folder: folder, machine: machine, raw: r.Kubelet, spec: r.Node, pods: newPods(),
		running: map[types.UID]bool{}, holders: map[types.UID]*v1.Pod{}}
	s.setDevices(r.Devices)
	if err := s.boot(true); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	s.kubelet.ready = true
	return s, nil
}

func (s *rig) setDevices(specs []resourceSpec) {
	s.plugins = nil
	for _, spec := range specs {
		s.plugins = append(s.plugins, &devicePlugin{spec})
	}
}

// boot starts a life of the kubelet over the checkpoints.
func (s *rig) boot(plugins bool) error {
	known := newPods()
	next, err := newKubelet(s.folder, s.machine, s.raw, s.spec, known)
	if err != nil {
		return err
	}
	containers, running := s.runtime()
	if err := next.start(containers, running); err != nil {
		return errors.Join(err, next.stop())
	}
	s.kubelet = next
	if plugins {
		if err := next.register(s.plugins); err != nil {
			return err
		}
	}
	return next.refreshNode()
}

// runtime is what the container runtime would list: all containers that were started, and which of them run.
func (s *rig) runtime() (containermap.ContainerMap, sets.Set[string]) {
	all, running := containermap.NewContainerMap(), sets.New[string]()
	for _, pod := range s.pods.order {
		if !s.running[pod.UID] {
			continue
		}
		for _, container := range containersOf(pod) {
			id := containerID(pod, container)
			all.Add(string(pod.UID), container.Name, id)
			if !endsByItself(pod, container.Name) {
				running.Insert(id)
			}
		}
	}
	return all, running
}

// close ends the kubelet; its checkpoints are nobody's any more.
func (s *rig) close() {
	if s.kubelet != nil {
		stopDeviceManager(s.kubelet)
	}
}

// do carries out every request but start.
func (s *rig) do(r *request) (any, error) {
	if s.kubelet == nil && r.Op != "restart" {
		return nil, errors.New("the kubelet did not start")
	}
	switch r.Op {
	case "admit":
		return s.admit(r)
	case "run":
		return s.run(r)
	case "remove":
		return s.remove(r)
	case "resize":
		return s.resize(r)
	case "devices":
		return s.devices(r)
	case "restart":
		return s.restart(r)
	case "state":
		return s.state(), nil
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

// admit is what happens when the API server has bound a new pod to the node.
func (s *rig) admit(r *request) (any, error) {
	if r.Pod == nil {
		return nil, errors.New("admit: no pod")
	}
	pod := r.Pod
	complete(pod)
	if _, ok := s.kubelet.pods.byUID[pod.UID]; ok {
		return nil, fmt.Errorf("admit: there is a pod with uid %q", pod.UID)
	}
	k := s.kubelet
	k.totals = r.Totals == nil || *r.Totals
	k.pods.add(pod)
	k.preempted = nil
	ok, reason, message := addPod(k, pod)
	k.totals = true
	s.hold(pod)
	answer := verdict{Admitted: ok, Reason: reason, Message: message, Preempted: k.preempted}
	for _, uid := range k.preempted {
		s.forget(uid)
	}
	if !ok {
		// What the managers had handed out when one of them refused: they keep it until they are asked again.
		answer.Held, _ = s.reportPod(pod)
		k.pods.remove(pod.UID)
		forgetHints(k, pod)
		answer.Containers = []containerReport{}
		return answer, nil
	}
	s.pods.add(pod)
	answer.Containers, answer.Pod = s.reportPod(pod)
	if r.Run == nil || *r.Run {
		answer.StartError = s.startContainers(pod)
		// A pod that is managed as a whole gets its devices only now.
		for i := range answer.Containers {
			answer.Containers[i].Devices = s.devicesOf(pod.UID, answer.Containers[i].Name)
		}
		s.hold(pod)
	}
	return answer, nil
}

// run starts the containers of a pod that was admitted with `"run": false`.
func (s *rig) run(r *request) (any, error) {
	pod, ok := s.pods.GetPodByUID(r.UID)
	if !ok {
		return nil, fmt.Errorf("run: no pod with uid %q", r.UID)
	}
	if message := s.startContainers(pod); message != "" {
		return nil, errors.New(message)
	}
	return done{true}, nil
}

// startContainers starts all containers in order, each init container after the end of the one before it.
func (s *rig) startContainers(pod *v1.Pod) string {
	if s.running[pod.UID] {
		return ""
	}
	s.running[pod.UID] = true
	allocated, _ := s.kubelet.allocation.UpdatePodFromAllocation(pod)
	message := ""
	for _, container := range containersOf(allocated) {
		if err := startContainer(s.kubelet, allocated, container); err != nil && message == "" {
			message = err.Error()
		}
	}
	return message
}

// remove is what happens when a pod is gone: its containers are removed, and the kubelet forgets it.
func (s *rig) remove(r *request) (any, error) {
	pod, ok := s.pods.GetPodByUID(r.UID)
	if !ok {
		return nil, fmt.Errorf("remove: no pod with uid %q", r.UID)
	}
	s.forget(pod.UID)
	if utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScaling) {
		retryResizes(s.kubelet, allocation.TriggerReasonPodsRemoved)
	}
	return done{true}, nil
}

// forget removes a pod's containers, then the pod.
func (s *rig) forget(uid types.UID) {
	pod, ok := s.pods.GetPodByUID(uid)
	if !ok {
		return
	}
	if s.running[uid] {
		for _, container := range containersOf(pod) {
			removeContainer(s.kubelet, containerID(pod, container))
		}
	} else {
		forgetHints(s.kubelet, pod)
	}
	delete(s.running, uid)
	s.pods.remove(uid)
	s.kubelet.pods.remove(uid)
	removePod(s.kubelet, uid)
}

// devices is what happens when a plugin sends a new list: the ones given replace those of the same resource.
func (s *rig) devices(r *request) (any, error) {
	for _, spec := range r.Devices {
		plugin := &devicePlugin{spec}
		known := false
		for i, old := range s.plugins {
			if old.spec.Resource == spec.Resource {
				s.plugins[i], known = plugin, true
			}
		}
		if !known {
			s.plugins = append(s.plugins, plugin)
		}
		if err := connectPlugin(s.kubelet, plugin); err != nil {
			return nil, err
		}
	}
	if err := s.kubelet.refreshNode(); err != nil {
		return nil, err
	}
	return started{OK: true, Allocatable: s.kubelet.allocatable()}, nil
}

// restart ends the kubelet and starts it again, perhaps with another configuration. The pods run on meanwhile.
func (s *rig) restart(r *request) (any, error) {
	if s.kubelet != nil {
		if err := s.kubelet.stop(); err != nil {
			return nil, err
		}
		s.kubelet = nil
	}
	if len(r.Kubelet) > 0 {
		s.raw = r.Kubelet
	}
	plugins := r.Plugins == nil || *r.Plugins
	if err := s.boot(plugins); err != nil {
		s.close()
		s.kubelet = nil
		return started{Error: err.Error()}, nil
	}
	rejected := s.readmit()
	s.kubelet.ready = true
	if !plugins {
		if err := s.kubelet.register(s.plugins); err != nil {
			return nil, err
		}
		if err := s.kubelet.refreshNode(); err != nil {
			return nil, err
		}
	}
	return started{OK: true, Allocatable: s.kubelet.allocatable(), Rejected: &rejected}, nil
}

// readmit admits the pods that were there before, while the sources are not ready.
func (s *rig) readmit() []rejection {
	k := s.kubelet
	rejected := []rejection{}
	var pending []types.UID
	scaling := utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScaling)
	for _, pod := range s.pods.sorted() {
		k.pods.add(pod)
		k.preempted = nil
		ok, reason, message := addPod(k, pod)
		s.hold(pod)
		for _, uid := range k.preempted {
			s.forget(uid)
		}
		if !ok {
			rejected = append(rejected, rejection{pod.UID, reason, message})
			s.forget(pod.UID)
			continue
		}
		if _, differs := k.allocation.UpdatePodFromAllocation(pod); scaling && differs {
			pending = append(pending, pod.UID)
		}
	}
	for _, uid := range pending {
		pushResize(k, uid)
	}
	if len(pending) > 0 {
		retryResizes(k, allocation.TriggerReasonPodsAdded)
	}
	return rejected
}

// resize is what happens when the API server has a pod with other resources.
func (s *rig) resize(r *request) (any, error) {
	if r.Pod == nil {
		return nil, errors.New("resize: no pod")
	}
	pod := r.Pod
	complete(pod)
	if _, ok := s.pods.GetPodByUID(pod.UID); !ok {
		return nil, fmt.Errorf("resize: no pod with uid %q", pod.UID)
	}
	k := s.kubelet
	s.pods.replace(pod)
	k.pods.replace(pod)
	answer := resizing{}
	if utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScaling) {
		if _, differs := k.allocation.UpdatePodFromAllocation(pod); differs {
			pushResize(k, pod.UID)
			retryResizes(k, allocation.TriggerReasonPodUpdated)
		} else {
			clearPendingResize(k, pod.UID)
		}
		_, differs := k.allocation.UpdatePodFromAllocation(pod)
		answer.Resized = !differs
	}
	for _, condition := range k.statuses.GetPodResizeConditions(pod.UID) {
		if condition.Type == v1.PodResizePending {
			answer.Condition, answer.Reason, answer.Message = condition.Reason, condition.Reason, condition.Message
		}
	}
	answer.Containers, answer.Pod = s.reportPod(pod)
	return answer, nil
}
