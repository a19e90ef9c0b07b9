package main

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// resourceSpec is one resource of a device plugin, as a request has it.
type resourceSpec struct {
	Resource  string       `json:"resource"`
	Devices   []deviceSpec `json:"devices"`
	Preferred *string      `json:"preferred"`
}

// deviceSpec is one device and the zones it is near to; no zones means no topology at all.
type deviceSpec struct {
	ID      string  `json:"id"`
	Nodes   []int64 `json:"nodes"`
	Healthy *bool   `json:"healthy"`
}

// devicePlugin is a device plugin inside this process. In: what the device manager asks a plugin. Out: success, and
// with `preferred` a preference that is a function of the question. Never: a socket.
type devicePlugin struct {
	spec resourceSpec
}

// list is what ListAndWatch would send.
func (p *devicePlugin) list() *pluginapi.ListAndWatchResponse {
	response := &pluginapi.ListAndWatchResponse{}
	for _, spec := range p.spec.Devices {
		device := &pluginapi.Device{ID: spec.ID, Health: pluginapi.Healthy}
		if spec.Healthy != nil && !*spec.Healthy {
			device.Health = pluginapi.Unhealthy
		}
		if len(spec.Nodes) > 0 {
			device.Topology = &pluginapi.TopologyInfo{}
			for _, node := range spec.Nodes {
				device.Topology.Nodes = append(device.Topology.Nodes, &pluginapi.NUMANode{ID: node})
			}
		}
		response.Devices = append(response.Devices, device)
	}
	return response
}

// API is the plugin as the device manager sees it.
func (p *devicePlugin) API() pluginapi.DevicePluginClient { return p }

// Resource is the name under which it registered.
func (p *devicePlugin) Resource() string { return p.spec.Resource }

// SocketPath is empty: nobody dials.
func (p *devicePlugin) SocketPath() string { return "" }

// GetDevicePluginOptions says whether there is a preference.
func (p *devicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty,
	...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: p.spec.Preferred != nil}, nil
}

// ListAndWatch is never called: lists are handed to the manager directly.
func (p *devicePlugin) ListAndWatch(context.Context, *pluginapi.Empty,
	...grpc.CallOption) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	return nil, errors.New("not a stream")
}

// GetPreferredAllocation answers the devices that must be included, then the first or last ones by name.
func (p *devicePlugin) GetPreferredAllocation(_ context.Context, in *pluginapi.PreferredAllocationRequest,
	_ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, question := range in.ContainerRequests {
		chosen := slices.Clone(question.MustIncludeDeviceIDs)
		others := slices.DeleteFunc(slices.Clone(question.AvailableDeviceIDs), func(id string) bool {
			return slices.Contains(chosen, id)
		})
		slices.Sort(others)
		if *p.spec.Preferred == "last" {
			slices.Reverse(others)
		}
		missing := max(0, int(question.AllocationSize)-len(chosen))
		chosen = append(chosen, others[:min(missing, len(others))]...)
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return response, nil
}

// Allocate agrees, with nothing to add to the container.
func (p *devicePlugin) Allocate(_ context.Context, in *pluginapi.AllocateRequest,
	_ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range in.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return response, nil
}

// PreStartContainer agrees.
func (p *devicePlugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest,
	...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}
