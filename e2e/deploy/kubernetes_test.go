package deploy_test

import (
	"maps"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidingq/siding/internal/testenv/expect"
)

const manifests = "deploy/kubernetes"

// manifest reads a file into a type of the API. An unknown field is an error.
func manifest[T any](t *testing.T, name string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(read(t, manifests, name), &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return object
}

// Workers have settings that Siding knows, and time to drain. The parts find one another.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	d := manifest[apps.Deployment](t, "deployment.yaml")
	pdb := manifest[policy.PodDisruptionBudget](t, "disruption.yaml")
	service := manifest[core.Service](t, "service.yaml")
	pod := d.Spec.Template
	for what, have := range map[string]map[string]string{
		"the deployment": d.Spec.Selector.MatchLabels, "the budget": pdb.Spec.Selector.MatchLabels, "the service": service.Spec.Selector,
	} {
		expect.That(t, len(pod.Labels) != 0 && maps.Equal(have, pod.Labels), "want %s to select %v, have %v", what, pod.Labels, have)
	}
	cfg := load(t, []string{"SIDING_CONFIG=" + filepath.Join(root, manifests, "config.yaml"), "SIDING_LEDGER_DSN=postgres://siding@database/siding"})
	var grace time.Duration
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	expect.That(t, grace > cfg.HardDeadline, "terminationGracePeriodSeconds: want more than shutdown.hard_deadline, %v, have %v", cfg.HardDeadline, grace)
}

// wantProbes wants a worker to answer what Kubernetes asks.
func wantProbes(t *testing.T, base string) {
	t.Helper()
	c := manifest[apps.Deployment](t, "deployment.yaml").Spec.Template.Spec.Containers[0]
	for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		expect.Eventually(t, probe.HTTPGet.Path, func() bool {
			request := expect.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, base+probe.HTTPGet.Path, http.NoBody))(t)
			reply, err := http.DefaultClient.Do(request)
			if err != nil {
				return false
			}
			_ = reply.Body.Close()
			return reply.StatusCode == http.StatusOK
		})
	}
}
