package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
)

func discover(ctx context.Context, world *World) error {
	client := world.typed.Discovery()
	version, err := client.ServerVersion()
	if err != nil || version.Major != "1" {
		return fmt.Errorf("version: %+v, %v", version, err)
	}
	if _, _, err := client.ServerGroupsAndResources(); err != nil {
		return fmt.Errorf("groups and resources: %w", err)
	}
	preferred, err := discovery.ServerPreferredResources(client)
	if err != nil || len(preferred) < 10 {
		return fmt.Errorf("preferred resources: %d, %v", len(preferred), err)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil || paths["apis/apps/v1"] == nil {
		return fmt.Errorf("OpenAPI: %v", err)
	}
	if document, err := client.OpenAPISchema(); err != nil || len(document.GetDefinitions().GetAdditionalProperties()) == 0 {
		fmt.Println("note: OpenAPI v2 in protobuf:", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	short := restmapper.NewShortcutExpander(mapper, client, func(string) {})
	for name, want := range map[string]string{"deploy": "Deployment", "svc": "Service", "hpa": "HorizontalPodAutoscaler", "crd": "CustomResourceDefinition"} {
		kind, err := short.KindFor(schema.GroupVersionResource{Resource: name})
		if err != nil || kind.Kind != want {
			return fmt.Errorf("%s is %v: %v", name, kind, err)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	if err != nil || mapping.Resource.Resource != "deployments" || mapping.Scope.Name() != "namespace" {
		return fmt.Errorf("mapping: %+v, %v", mapping, err)
	}
	return nil
}

func webDeployment(replicas int32) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "applied"}
	return applyapps.Deployment("applied", namespace).WithSpec(applyapps.DeploymentSpec().
		WithReplicas(replicas).
		WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().
			WithContainers(applycore.Container().WithName("web").WithImage("web:1")))))
}

func applyThings(ctx context.Context, world *World) error {
	client := world.typed.AppsV1().Deployments(namespace)
	if _, err := client.Apply(ctx, webDeployment(1), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	_, err := client.Apply(ctx, webDeployment(2), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.replicas") {
		return fmt.Errorf("apply by another: %v", err)
	}
	forced, err := client.Apply(ctx, webDeployment(2), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil || *forced.Spec.Replicas != 2 {
		return fmt.Errorf("apply with force: %v", err)
	}
	extracted, err := applyapps.ExtractDeployment(forced, "two")
	if err != nil || !reflect.DeepEqual(extracted.Spec, webDeployment(2).Spec) {
		return fmt.Errorf("what two applied: %+v, %v", extracted, err)
	}
	scale, err := client.GetScale(ctx, "applied", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 2 {
		return fmt.Errorf("scale: %+v, %v", scale, err)
	}
	scale.Spec.Replicas = 5
	if scale, err = client.UpdateScale(ctx, "applied", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 5 {
		return fmt.Errorf("update scale: %+v, %v", scale, err)
	}
	now, err := client.Get(ctx, "applied", metav1.GetOptions{})
	if err != nil || *now.Spec.Replicas != 5 || now.Generation != 3 {
		return fmt.Errorf("after scaling: %+v, %v", now, err)
	}
	now.Status.ObservedGeneration = now.Generation
	if _, err = client.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	if _, err = client.UpdateStatus(ctx, now, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("update an old status: %v", err)
	}
	return patchThings(ctx, world)
}

func patchThings(ctx context.Context, world *World) error {
	client := world.typed.AppsV1().Deployments(namespace)
	patches := []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"json":"yes"}}]`},
		{types.MergePatchType, `{"metadata":{"labels":{"merge":"yes"}}}`},
		{types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`},
	}
	var last *appsv1.Deployment
	for _, patch := range patches {
		var err error
		if last, err = client.Patch(ctx, "applied", patch.kind, []byte(patch.body), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", patch.kind, err)
		}
	}
	if len(last.Spec.Template.Spec.Containers) != 2 || last.Labels["json"] != "yes" || last.Labels["merge"] != "yes" {
		return fmt.Errorf("after patches: %+v", last)
	}
	return nil
}

func listChunks(ctx context.Context, world *World) error {
	const count = 230
	client := world.typed.CoreV1().ConfigMaps(namespace)
	for index := range count {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("chunk-%03d", index), Labels: map[string]string{"part": "chunks"},
		}}
		if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	chunks := 0
	var names []string
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		chunks++
		return client.List(ctx, options)
	})
	pages.PageSize = 50
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: "part=chunks"}, func(object runtime.Object) error {
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	})
	if err != nil || chunks != 5 || len(names) != count || names[0] != "chunk-000" || names[count-1] != "chunk-229" {
		return fmt.Errorf("%d chunks, %d objects: %v", chunks, len(names), err)
	}
	whole, err := client.List(ctx, metav1.ListOptions{LabelSelector: "part=chunks", Limit: 100})
	if err != nil || len(whole.Items) != 100 || whole.Continue == "" {
		return fmt.Errorf("first 100: %v", err)
	}
	return client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "part=chunks"})
}

func electLeader(ctx context.Context, world *World) error {
	led := make(chan string, 2)
	candidate := func(name string) (context.CancelFunc, error) {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, "leader",
			world.typed.CoreV1(), world.typed.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
		if err != nil {
			return nil, err
		}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 500 * time.Millisecond,
			ReleaseOnCancel: true, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { led <- name }, OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return nil, err
		}
		run, cancel := context.WithCancel(ctx)
		go elector.Run(run)
		return cancel, nil
	}
	resign, err := candidate("first")
	if err != nil {
		return err
	}
	defer resign()
	if who := <-led; who != "first" {
		return fmt.Errorf("%s leads", who)
	}
	leave, err := candidate("second")
	if err != nil {
		return err
	}
	defer leave()
	resign()
	select {
	case who := <-led:
		if who != "second" {
			return fmt.Errorf("%s leads", who)
		}
	case <-ctx.Done():
		return errors.New("nobody leads")
	}
	lease, err := world.typed.CoordinationV1().Leases(namespace).Get(ctx, "leader", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions < 1 {
		return fmt.Errorf("lease: %+v, %v", lease, err)
	}
	return nil
}
