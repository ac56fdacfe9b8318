// Traefik's own Nomad provider, without the proxy around it: prints each configuration that it makes of an agent's services as
// a line of JSON. Usage: traefik <watch|poll> [namespace...]; address and token come from NOMAD_ADDR and NOMAD_TOKEN.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"time"

	ptypes "github.com/traefik/paerser/types"
	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/provider/nomad"
	"github.com/traefik/traefik/v3/pkg/safe"
)

const pollInterval = 200 * time.Millisecond

func main() {
	builder := nomad.ProviderBuilder{Namespaces: os.Args[2:]}
	builder.SetDefaults()
	builder.ExposedByDefault = false
	builder.Watch = os.Args[1] == "watch"
	builder.RefreshInterval = ptypes.Duration(pollInterval)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool := safe.NewPool(ctx)
	configurations := make(chan dynamic.Message)
	for _, provider := range builder.BuildProviders() {
		if err := provider.Init(); err != nil {
			log.Fatal(err)
		}
		if err := provider.Provide(configurations, pool); err != nil {
			log.Fatal(err)
		}
	}

	lines := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			pool.Stop()
			return
		case message := <-configurations:
			if err := lines.Encode(message); err != nil {
				log.Fatal(err)
			}
		}
	}
}
