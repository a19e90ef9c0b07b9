package main

import (
	"context"
	"errors"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientcache "k8s.io/client-go/tools/cache"
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

// claimManager knows the claims and devices of a request.
func claimManager(ctx context.Context, factory informers.SharedInformerFactory, asked *deviceObjects) (
	fwk.SharedDRAManager, error) {
	informer := &claimInformer{}
	claims := assumecache.NewAssumeCache(klog.Background(), informer, "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	for _, handler := range informer.handlers {
		for _, claim := range asked.Claims {
			handler.OnAdd(claim, true)
		}
	}
	return manager, nil
}

// allocations are the devices that the claims of the pod get on a node, by the names of the claims. Reserve says them.
func (c *cycle) allocations(ctx context.Context, state fwk.CycleState, node string) (
	map[string]*resourceapi.AllocationResult, error) {
	status := c.framework.RunReservePluginsReserve(ctx, state, c.pod, node)
	defer c.framework.RunReservePluginsUnreserve(ctx, state, c.pod, node)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	found := map[string]*resourceapi.AllocationResult{}
	for _, claim := range c.claims {
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
		found[claim.Namespace+"/"+claim.Name] = allocation
	}
	return found, nil
}
