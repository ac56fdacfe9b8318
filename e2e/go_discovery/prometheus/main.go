// Prometheus' own discovery of services in Nomad, without what scrapes them: reads one entry of `nomad_sd_configs` from
// standard input and prints the targets as a line of JSON after each refresh.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/nomad"
	"go.yaml.in/yaml/v2"
)

const (
	scrape    = "services"
	syncPause = 50 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	entry := new(nomad.SDConfig)
	if err := yaml.UnmarshalStrict(text, entry); err != nil {
		log.Fatal(err)
	}

	registry := prometheus.NewRegistry()
	metrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		log.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	manager := discovery.NewManager(ctx, logger, registry, metrics, discovery.Updatert(syncPause))
	if err := manager.ApplyConfig(map[string]discovery.Configs{scrape: {entry}}); err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := manager.Run(); err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
	}()

	lines := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			return
		case groups := <-manager.SyncCh():
			targets := []model.LabelSet{}
			for _, group := range groups[scrape] {
				targets = append(targets, group.Targets...)
			}
			if err := lines.Encode(targets); err != nil {
				log.Fatal(err)
			}
		}
	}
}
