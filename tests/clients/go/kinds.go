package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What every typed client of a kind can do.
type creator[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}

type reader[T any] interface {
	creator[T]
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// Creates an object, reads it, and wants both the same.
func keep[T metav1.Object](client reader[T], object T) func(context.Context) error {
	return func(ctx context.Context) error {
		made, err := client.Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create %T: %w", object, err)
		}
		if made.GetUID() == "" || made.GetResourceVersion() == "" || made.GetCreationTimestamp().Time.IsZero() {
			return fmt.Errorf("create %T: not stamped: %+v", object, made)
		}
		read, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get %T: %w", object, err)
		}
		if !reflect.DeepEqual(made, read) {
			return fmt.Errorf("%T differs:\n%+v\n%+v", object, made, read)
		}
		if _, err = client.Create(ctx, object, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T twice: %v", object, err)
		}
		return nil
	}
}

// Asks a review, which is answered and not kept.
func ask[T any](client creator[T], question T, holds func(T) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		answer, err := client.Create(ctx, question, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask %T: %w", question, err)
		}
		if !holds(answer) {
			return fmt.Errorf("ask %T: not %+v", question, answer)
		}
		return nil
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}
}

func ptr[T any](value T) *T { return &value }

func pods() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1",
				Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
				Env:       []corev1.EnvVar{{Name: "A", Value: "b"}},
			}},
		},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func createKinds(ctx context.Context, world *World) error {
	spaces := world.typed.CoreV1().Namespaces()
	if err := keep(spaces, &corev1.Namespace{ObjectMeta: named(namespace)})(ctx); err != nil {
		return err
	}
	var failures []error
	for _, group := range [][]func(context.Context) error{core(world), workloads(world), others(world), reviews(world)} {
		for _, try := range group {
			failures = append(failures, try(ctx))
		}
	}
	return errors.Join(failures...)
}

func core(world *World) []func(context.Context) error {
	v1 := world.typed.CoreV1()
	where := corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: "all"}
	return []func(context.Context) error{
		keep(v1.ConfigMaps(namespace), &corev1.ConfigMap{
			ObjectMeta: named("all"), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0, 255}},
		}),
		keep(v1.Secrets(namespace), &corev1.Secret{ObjectMeta: named("all"), Data: map[string][]byte{"a": {1, 2, 3}}}),
		keep(v1.Services(namespace), &corev1.Service{ObjectMeta: named("all"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		}}),
		keep(v1.Endpoints(namespace), &corev1.Endpoints{ObjectMeta: named("other"), Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3"}}, Ports: []corev1.EndpointPort{{Port: 80}},
		}}}),
		keep(v1.ServiceAccounts(namespace), &corev1.ServiceAccount{ObjectMeta: named("all")}),
		keep(v1.ReplicationControllers(namespace), &corev1.ReplicationController{
			ObjectMeta: named("all"),
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr[int32](2), Template: ptr(pods())},
		}),
		keep(v1.LimitRanges(namespace), &corev1.LimitRange{ObjectMeta: named("all"), Spec: corev1.LimitRangeSpec{
			Limits: []corev1.LimitRangeItem{{Type: "Container", Max: corev1.ResourceList{"cpu": resource.MustParse("4")}}},
		}}),
		keep(v1.ResourceQuotas(namespace), &corev1.ResourceQuota{ObjectMeta: named("all"), Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"pods": resource.MustParse("10")},
		}}),
		keep(v1.Events(namespace), &corev1.Event{
			ObjectMeta: named("all"), InvolvedObject: where, Reason: "Tried", Message: "once", Type: "Normal",
		}),
		keep(world.typed.EventsV1().Events(namespace), &eventsv1.Event{
			ObjectMeta: named("all-new"), Regarding: where, Reason: "Tried", Note: "again", Type: "Normal",
			Action: "Trying", EventTime: metav1.NowMicro(), ReportingController: "landfall.dev/test",
			ReportingInstance: "test-1",
		}),
	}
}

func workloads(world *World) []func(context.Context) error {
	apps, batch := world.typed.AppsV1(), world.typed.BatchV1()
	run := batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pods().Spec}}
	run.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return []func(context.Context) error{
		keep(apps.Deployments(namespace), &appsv1.Deployment{
			ObjectMeta: named("all"),
			Spec:       appsv1.DeploymentSpec{Replicas: ptr[int32](3), Selector: selector(), Template: pods()},
		}),
		keep(apps.ReplicaSets(namespace), &appsv1.ReplicaSet{
			ObjectMeta: named("all"), Spec: appsv1.ReplicaSetSpec{Selector: selector(), Template: pods()},
		}),
		keep(apps.DaemonSets(namespace), &appsv1.DaemonSet{
			ObjectMeta: named("all"), Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: pods()},
		}),
		keep(apps.StatefulSets(namespace), &appsv1.StatefulSet{
			ObjectMeta: named("all"),
			Spec:       appsv1.StatefulSetSpec{Selector: selector(), Template: pods(), ServiceName: "all"},
		}),
		keep(batch.Jobs(namespace), &batchv1.Job{ObjectMeta: named("all"), Spec: run}),
		keep(batch.CronJobs(namespace), &batchv1.CronJob{ObjectMeta: named("all"), Spec: batchv1.CronJobSpec{
			Schedule: "*/5 * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: run},
		}}),
		keep(world.typed.AutoscalingV1().HorizontalPodAutoscalers(namespace), &autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: named("one"),
			Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "all", APIVersion: "apps/v1"},
				MaxReplicas:    5, TargetCPUUtilizationPercentage: ptr[int32](70),
			},
		}),
		keep(world.typed.AutoscalingV2().HorizontalPodAutoscalers(namespace), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: named("two"),
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "all", APIVersion: "apps/v1"},
				MaxReplicas:    5,
				Metrics: []autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
					Name: "memory", Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: ptr(resource.MustParse("1Gi"))},
				}}},
			},
		}),
		keep(world.typed.PolicyV1().PodDisruptionBudgets(namespace), &policyv1.PodDisruptionBudget{
			ObjectMeta: named("all"),
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector(), MinAvailable: ptr(intstr.FromString("50%"))},
		}),
	}
}

func others(world *World) []func(context.Context) error {
	network, rbac := world.typed.NetworkingV1(), world.typed.RbacV1()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	people := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}}
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: "all", Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	return []func(context.Context) error{
		keep(network.IngressClasses(), &networkingv1.IngressClass{
			ObjectMeta: named("go-client"), Spec: networkingv1.IngressClassSpec{Controller: "landfall.dev/edge"},
		}),
		keep(network.Ingresses(namespace), &networkingv1.Ingress{
			ObjectMeta: named("all"), Spec: networkingv1.IngressSpec{DefaultBackend: &backend},
		}),
		keep(network.NetworkPolicies(namespace), &networkingv1.NetworkPolicy{
			ObjectMeta: named("all"), Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector()},
		}),
		keep(world.typed.DiscoveryV1().EndpointSlices(namespace), &discoveryv1.EndpointSlice{
			ObjectMeta: named("all"), AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, Zone: ptr("z")}},
			Ports:     []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr[int32](80)}},
		}),
		keep(world.typed.CoordinationV1().Leases(namespace), &coordinationv1.Lease{
			ObjectMeta: named("all"),
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr("me"), LeaseDurationSeconds: ptr[int32](15), RenewTime: ptr(metav1.NowMicro()),
			},
		}),
		keep(rbac.Roles(namespace), &rbacv1.Role{ObjectMeta: named("all"), Rules: rules}),
		keep(rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: named("go-client"), Rules: rules}),
		keep(rbac.RoleBindings(namespace), &rbacv1.RoleBinding{
			ObjectMeta: named("all"), Subjects: people,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "all"},
		}),
		keep(rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: named("go-client"), Subjects: people,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "go-client"},
		}),
	}
}

func reviews(world *World) []func(context.Context) error {
	authn, authz := world.typed.AuthenticationV1(), world.typed.AuthorizationV1()
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "secrets"}
	return []func(context.Context) error{
		ask(authz.SubjectAccessReviews(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: attributes},
		}, func(r *authorizationv1.SubjectAccessReview) bool { return r.Status.Allowed }),
		ask(authz.LocalSubjectAccessReviews(namespace), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec:       authorizationv1.SubjectAccessReviewSpec{User: "max", ResourceAttributes: attributes},
		}, func(r *authorizationv1.LocalSubjectAccessReview) bool { return !r.Status.Allowed }),
		ask(authz.SelfSubjectAccessReviews(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}, func(r *authorizationv1.SelfSubjectAccessReview) bool { return r.Status.Allowed }),
		ask(authz.SelfSubjectRulesReviews(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, func(r *authorizationv1.SelfSubjectRulesReview) bool { return len(r.Status.ResourceRules) > 0 }),
		ask(authn.SelfSubjectReviews(), &authenticationv1.SelfSubjectReview{},
			func(r *authenticationv1.SelfSubjectReview) bool { return r.Status.UserInfo.Username != "" }),
		func(ctx context.Context) error { return tokens(ctx, world) },
	}
}

// A token that was asked for is one that a review knows.
func tokens(ctx context.Context, world *World) error {
	accounts := world.typed.CoreV1().ServiceAccounts(namespace)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr[int64](3600)}}
	made, err := accounts.CreateToken(ctx, "all", request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	reviews := world.typed.AuthenticationV1().TokenReviews()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: made.Status.Token}}
	want := "system:serviceaccount:" + namespace + ":all"
	return ask(reviews, review, func(r *authenticationv1.TokenReview) bool {
		return r.Status.Authenticated && r.Status.User.Username == want
	})(ctx)
}
