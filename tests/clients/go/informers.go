package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gadgets     = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// An informer and what it must agree with.
type followed struct {
	name     string
	informer cache.SharedIndexInformer
	resource schema.GroupVersionResource
	events   atomic.Int64
	// The newest version seen of each object: they only rise.
	mutex    sync.Mutex
	versions map[string]uint64
	wrong    error
}

func runInformers(ctx context.Context, world *World) error {
	if err := defineGadgets(ctx, world); err != nil {
		return err
	}
	typed := informers.NewSharedInformerFactory(world.typed, 0)
	dynamics := dynamicinformer.NewDynamicSharedInformerFactory(world.dynamic, 0)
	metadatas := metadatainformer.NewSharedInformerFactory(world.metadata, 0)
	all := []*followed{
		{name: "typed configmaps", informer: typed.Core().V1().ConfigMaps().Informer(), resource: configMaps},
		{name: "typed secrets", informer: typed.Core().V1().Secrets().Informer(), resource: secrets},
		{name: "typed services", informer: typed.Core().V1().Services().Informer(), resource: services},
		{name: "dynamic gadgets", informer: dynamics.ForResource(gadgets).Informer(), resource: gadgets},
		{name: "dynamic configmaps", informer: dynamics.ForResource(configMaps).Informer(), resource: configMaps},
		{name: "metadata of secrets", informer: metadatas.ForResource(secrets).Informer(), resource: secrets},
		{name: "metadata of gadgets", informer: metadatas.ForResource(gadgets).Informer(), resource: gadgets},
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	for _, one := range all {
		if err := one.follow(); err != nil {
			return err
		}
	}
	typed.Start(run.Done())
	dynamics.Start(run.Done())
	metadatas.Start(run.Done())
	for _, one := range all {
		if !cache.WaitForCacheSync(run.Done(), one.informer.HasSynced) {
			return fmt.Errorf("%s never synced", one.name)
		}
	}
	writes, err := writeFor(run, world, time.Duration(world.seconds)*time.Second)
	if err != nil {
		return err
	}
	var failures []error
	for _, one := range all {
		failures = append(failures, one.agrees(ctx, world))
	}
	if world.streamed.Load() < int64(len(all)) {
		failures = append(failures, fmt.Errorf("only %d lists were streamed", world.streamed.Load()))
	}
	fmt.Printf("   %d writes, %d streamed lists\n", writes, world.streamed.Load())
	return errors.Join(failures...)
}

func defineGadgets(ctx context.Context, world *World) error {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": open},
			}},
		},
	}}
	if _, err := world.dynamic.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("define gadgets: %w", err)
	}
	for ctx.Err() == nil {
		if _, err := world.dynamic.Resource(gadgets).List(ctx, metav1.ListOptions{}); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("gadgets are never served")
}

func (f *followed) follow() error {
	f.versions = map[string]uint64{}
	seen := func(object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		f.events.Add(1)
		f.rises(object)
	}
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }, DeleteFunc: seen,
	})
	return err
}

func (f *followed) rises(object any) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	key := accessor.GetNamespace() + "/" + accessor.GetName()
	if err != nil || version < f.versions[key] {
		f.wrong = fmt.Errorf("%s: %s went from %d to %d: %v", f.name, key, f.versions[key], version, err)
	}
	f.versions[key] = version
}

// Waits until the informer's store holds what a list holds; says what differs if it never does.
func (f *followed) agrees(ctx context.Context, world *World) error {
	if f.events.Load() == 0 {
		return fmt.Errorf("%s saw nothing", f.name)
	}
	list, err := world.dynamic.Resource(f.resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, item := range list.Items {
		want[item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
	}
	difference := ""
	for range 600 {
		if difference = f.difference(want); difference == "" {
			f.mutex.Lock()
			defer f.mutex.Unlock()
			return f.wrong
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s differs from a list: %s", f.name, difference)
}

func (f *followed) difference(want map[string]string) string {
	have := map[string]string{}
	for _, object := range f.informer.GetStore().List() {
		accessor, err := meta.Accessor(object.(runtime.Object))
		if err != nil {
			return err.Error()
		}
		have[accessor.GetNamespace()+"/"+accessor.GetName()] = accessor.GetResourceVersion()
	}
	for key, version := range want {
		if have[key] != version {
			return fmt.Sprintf("%s is at %q, should be at %q", key, have[key], version)
		}
	}
	for key := range have {
		if want[key] == "" {
			return key + " should be gone"
		}
	}
	return ""
}

// Several writers create, change and delete at random; how many writes there were.
func writeFor(ctx context.Context, world *World, duration time.Duration) (int64, error) {
	end := time.Now().Add(duration)
	var writes atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, 4)
	for writer := range failures {
		group.Go(func() {
			luck := rand.New(rand.NewSource(int64(writer)))
			for time.Now().Before(end) && failures[writer] == nil {
				failures[writer] = writeOnce(ctx, world, luck)
				writes.Add(1)
			}
		})
	}
	group.Wait()
	return writes.Load(), errors.Join(failures...)
}

// One write of a random kind to a random object; losing a race with another writer is fine.
func writeOnce(ctx context.Context, world *World, luck *rand.Rand) error {
	name := fmt.Sprintf("busy-%02d", luck.Intn(40))
	data := strconv.Itoa(luck.Int())
	resource := []schema.GroupVersionResource{configMaps, secrets, services, gadgets}[luck.Intn(4)]
	client := world.dynamic.Resource(resource).Namespace(namespace)
	var err error
	switch luck.Intn(3) {
	case 0:
		err = client.Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"data":"%s"}}}`, data)
		_, err = client.Patch(ctx, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	default:
		err = createBusy(ctx, world, resource, name, data)
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func createBusy(ctx context.Context, world *World, resource schema.GroupVersionResource, name, data string) error {
	object := metav1.ObjectMeta{Name: name}
	var err error
	switch resource {
	case configMaps:
		made := &corev1.ConfigMap{ObjectMeta: object, Data: map[string]string{"data": data}}
		_, err = world.typed.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{})
	case secrets:
		made := &corev1.Secret{ObjectMeta: object, StringData: map[string]string{"data": data}}
		_, err = world.typed.CoreV1().Secrets(namespace).Create(ctx, made, metav1.CreateOptions{})
	case services:
		made := &corev1.Service{ObjectMeta: object, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		_, err = world.typed.CoreV1().Services(namespace).Create(ctx, made, metav1.CreateOptions{})
	default:
		made := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"data": data},
		}}
		_, err = world.dynamic.Resource(gadgets).Namespace(namespace).Create(ctx, made, metav1.CreateOptions{})
	}
	return err
}
