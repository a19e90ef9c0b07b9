package main

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// deviceObjects are the objects of a request that DynamicResources looks at.
type deviceObjects struct {
	Claims  []*resourceapi.ResourceClaim `json:"resourceClaims"`
	Slices  []*resourceapi.ResourceSlice `json:"resourceSlices"`
	Classes []*resourceapi.DeviceClass   `json:"deviceClasses"`
}

// fill puts them into the caches that listers read.
func (o *deviceObjects) fill(factory informers.SharedInformerFactory) error {
	resources := factory.Resource().V1()
	return errors.Join(
		add(resources.ResourceSlices().Informer(), o.Slices...),
		add(resources.DeviceClasses().Informer(), o.Classes...),
	)
}

// claimInformer tells a cache of claims about the claims of a request, as an informer that runs would.
type claimInformer struct {
	handlers []clientcache.ResourceEventHandler
}

func (i *claimInformer) AddEventHandler(handler clientcache.ResourceEventHandler) (
	clientcache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return nil, nil
}

// manager is kube-scheduler's, and remembers the claim that is made for extended resources of the pod.
type manager struct {
	fwk.SharedDRAManager
	made *resourceapi.ResourceClaim
}

// claimTracker tells a manager of the claim that is made.
type claimTracker struct {
	fwk.ResourceClaimTracker
	manager *manager
}

// ResourceClaims implements fwk.SharedDRAManager.
func (m *manager) ResourceClaims() fwk.ResourceClaimTracker {
	return &claimTracker{ResourceClaimTracker: m.SharedDRAManager.ResourceClaims(), manager: m}
}

// SignalClaimPendingAllocation implements fwk.ResourceClaimTracker.
func (t *claimTracker) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	if strings.HasPrefix(claim.Name, "<") {
		t.manager.made = claim
	}
	return t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
}

// claimManager knows the claims and devices of a request.
func claimManager(ctx context.Context, factory informers.SharedInformerFactory, asked *deviceObjects) (
	*manager, error) {
	informer := &claimInformer{}
	claims := assumecache.NewAssumeCache(klog.Background(), informer, "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, err
	}
	known := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	if classes, ok := known.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache); ok {
		for _, class := range asked.Classes {
			classes.OnAdd(class, true)
		}
	}
	for _, handler := range informer.handlers {
		for _, claim := range asked.Claims {
			handler.OnAdd(claim, true)
		}
	}
	return &manager{SharedDRAManager: known}, nil
}

// usesDevices says whether the pod has claims, or one may be made for it.
func usesDevices(pod *v1.Pod) bool {
	containers := append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for at := range containers {
		for name := range containers[at].Resources.Requests {
			if strings.Contains(string(name), "/") {
				return true
			}
		}
	}
	return len(pod.Spec.ResourceClaims) > 0
}

// allocations are the devices that the claims of the pod get on a node, by the names of the claims. Reserve says them.
func (c *cycle) allocations(ctx context.Context, state fwk.CycleState, node string) (
	map[string]*resourceapi.AllocationResult, error) {
	c.manager.made = nil
	status := c.framework.RunReservePluginsReserve(ctx, state, c.pod, node)
	defer c.framework.RunReservePluginsUnreserve(ctx, state, c.pod, node)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	found := map[string]*resourceapi.AllocationResult{}
	all := c.claims
	if made := c.manager.made; made != nil && len(made.Spec.Devices.Requests) > 0 {
		all = append(append([]*resourceapi.ResourceClaim{}, all...), made)
	}
	for _, claim := range all {
		pending := c.manager.ResourceClaims().GetPendingAllocation(claim.UID)
		if pending == nil {
			continue
		}
		allocation := pending.DeepCopy()
		for at := range allocation.Devices.Results {
			// The ids of shares are random.
			if result := &allocation.Devices.Results[at]; result.ShareID != nil {
				result.ShareID = new(types.UID)
			}
		}
		name := claim.Namespace + "/" + claim.Name
		if claim == c.manager.made {
			name += "/" + string(c.pod.UID)
		}
		found[name] = allocation
	}
	return found, nil
}
