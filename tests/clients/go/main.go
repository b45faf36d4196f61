// Command clients uses a hub as controllers written with client-go do, and fails on any difference.
//
// Informers (typed, dynamic, metadata) run while objects are written, and must end with the same state as a list.
// Besides: typed creates of every kind in protobuf, discovery, mapping, apply configurations, chunked lists, leader
// election, scale.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Everything lives in this namespace.
const namespace = "go-client"

// World is what every part is given.
type World struct {
	config   *rest.Config
	typed    *kubernetes.Clientset
	dynamic  dynamic.Interface
	metadata metadata.Interface
	seconds  int
	// How many lists were streamed instead of asked for.
	streamed *atomic.Int64
}

// The parts, in order.
var parts = []struct {
	name string
	run  func(context.Context, *World) error
}{
	{"kinds in protobuf", createKinds},
	{"discovery and mapping", discover},
	{"apply, scale, status", applyThings},
	{"chunked lists", listChunks},
	{"leader election", electLeader},
	{"informers under writes", runInformers},
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the hub is")
	seconds := flag.Int("seconds", 20, "how long informers run under writes")
	flag.Parse()
	world, err := newWorld(*kubeconfig, *seconds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	failed := false
	for _, part := range parts {
		limit := time.Duration(*seconds)*time.Second + 2*time.Minute
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		began := time.Now()
		if err := part.run(ctx, world); err != nil {
			fmt.Printf("FAILED %s: %v\n", part.name, err)
			failed = true
		} else {
			fmt.Printf("ok %s (%.1f s)\n", part.name, time.Since(began).Seconds())
		}
		cancel()
	}
	if failed {
		os.Exit(1)
	}
}

func newWorld(kubeconfig string, seconds int) (*World, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 500
	world := &World{config: config, seconds: seconds, streamed: &atomic.Int64{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.Contains(request.URL.RawQuery, "sendInitialEvents=true") {
				world.streamed.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	proto := rest.CopyConfig(config)
	proto.ContentType = "application/vnd.kubernetes.protobuf"
	proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if world.typed, err = kubernetes.NewForConfig(proto); err != nil {
		return nil, err
	}
	if world.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	world.metadata, err = metadata.NewForConfig(config)
	return world, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
