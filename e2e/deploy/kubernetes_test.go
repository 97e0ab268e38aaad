package deploy_test

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

const manifests = "deploy/kubernetes"

// manifest reads a file into the type of the API that it names. An unknown field is an error.
func manifest[T any](t *testing.T, name, version, kind string) (object T) {
	t.Helper()
	text := read(t, manifests, name)
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if want := "apiVersion: " + version + "\nkind: " + kind + "\n"; !bytes.Contains(text, []byte(want)) {
		t.Errorf("%s: want %q", name, want)
	}
	return object
}

// deployment returns the workers, and their only container.
func deployment(t *testing.T) (apps.Deployment, core.Container) {
	t.Helper()
	d := manifest[apps.Deployment](t, "deployment.yaml", "apps/v1", "Deployment")
	if n := len(d.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("want one container, have %d", n)
	}
	return d, d.Spec.Template.Spec.Containers[0]
}

// kustomization returns the file that names the others.
func kustomization(t *testing.T) (file struct {
	APIVersion         string   `json:"apiVersion"`
	Kind               string   `json:"kind"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name  string   `json:"name"`
		Files []string `json:"files"`
	} `json:"configMapGenerator"`
	Images []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
},
) {
	t.Helper()
	expect.OK(t, yaml.UnmarshalStrict(read(t, manifests, "kustomization.yaml"), &file))
	return file
}

// All files of the folder are used, and all that are named are there.
func TestKustomization(t *testing.T) {
	t.Parallel()
	k := kustomization(t)
	have := append([]string{"kustomization.yaml"}, k.Resources...)
	for _, g := range k.ConfigMapGenerator {
		have = append(have, g.Files...)
	}
	entries := expect.Value(os.ReadDir(filepath.Join(root, manifests)))(t)
	var want []string
	for _, e := range entries {
		want = append(want, e.Name())
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("want the files %q, have %q", want, have)
	}
	if _, c := deployment(t); len(k.Images) != 1 || k.Images[0].Name != c.Image {
		t.Errorf("want the image %s renamed, have %+v", c.Image, k.Images)
	}
}

// settings loads the file of the ConfigMap with the variables of the container.
func settings(t *testing.T, c core.Container) config.Config {
	t.Helper()
	var environ []string
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = "postgres://siding@database/siding" // of the Secret
		}
		if v.Name == "SIDING_CONFIG" {
			if want := path.Join(mounts(c)["config"], "config.yaml"); value != want {
				t.Errorf("%s: want %s, where the ConfigMap is mounted, have %s", v.Name, want, value)
			}
			value = filepath.Join(root, manifests, "config.yaml")
		}
		environ = append(environ, v.Name+"="+value)
	}
	return load(t, environ)
}

// mounts returns where the volumes of a container are, by name.
func mounts(c core.Container) map[string]string {
	all := make(map[string]string)
	for _, m := range c.VolumeMounts {
		all[m.Name] = m.MountPath
	}
	return all
}

// Workers have settings that Siding knows, time to drain, and no rights.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d, c := deployment(t)
	pod, cfg := d.Spec.Template.Spec, settings(t, c)
	var stop time.Duration
	if seconds := pod.TerminationGracePeriodSeconds; seconds != nil {
		stop = time.Duration(*seconds) * time.Second
	}
	if stop <= cfg.HardDeadline {
		t.Errorf("terminationGracePeriodSeconds: want more than shutdown.hard_deadline, %v, have %v", cfg.HardDeadline, stop)
	}
	_, image := stages(t)
	at := mounts(c)
	for _, file := range []string{cfg.Redis.PasswordFile, cfg.HTTP.PasswordFile} {
		if path.Dir(file) != at["secret"] {
			t.Errorf("want a password in %s, where the Secret is mounted, have %s", at["secret"], file)
		}
	}
	if at["work"] != workdir(image) {
		t.Errorf("want %s to be written to, have %v", workdir(image), at)
	}
	s, own := pod.SecurityContext, c.SecurityContext
	switch {
	case s == nil || own == nil:
		t.Fatal("want security contexts of the pod and of its container")
	case s.RunAsNonRoot == nil || !*s.RunAsNonRoot, own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem,
		own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation, own.Capabilities == nil || !slices.Contains(own.Capabilities.Drop, "ALL"),
		s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Errorf("want a user without rights, and no way to gain any, have %+v and %+v", s, own)
	}
	if _, ok := c.Resources.Limits[core.ResourceMemory]; !ok || len(c.Resources.Requests) != 2 {
		t.Errorf("want resources, have %+v", c.Resources)
	}
	if d.Spec.Replicas == nil || *d.Spec.Replicas < 2 || len(pod.TopologySpreadConstraints) != 1 {
		t.Errorf("want two workers or more, on different nodes, have %v, %+v", d.Spec.Replicas, pod.TopologySpreadConstraints)
	}
}

// The parts find one another by labels and names.
func TestManifestsFitTogether(t *testing.T) {
	t.Parallel()
	d, c := deployment(t)
	pdb := manifest[policy.PodDisruptionBudget](t, "disruption.yaml", "policy/v1", "PodDisruptionBudget")
	service := manifest[core.Service](t, "service.yaml", "v1", "Service")
	labels := d.Spec.Template.Labels
	for what, have := range map[string]map[string]string{
		"the deployment": d.Spec.Selector.MatchLabels, "the budget": pdb.Spec.Selector.MatchLabels, "the service": service.Spec.Selector,
		"the spread": d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(labels) == 0 || !maps.Equal(have, labels) {
			t.Errorf("want %s to select %v, have %v", what, labels, have)
		}
	}
	if most := pdb.Spec.MaxUnavailable; most == nil || most.IntValue() < 1 || most.IntValue() >= int(*d.Spec.Replicas) {
		t.Errorf("want a budget by which a node can be drained, and workers are left, have %v", most)
	}
	port := c.Ports[0]
	if _, of, _ := strings.Cut(settings(t, c).HTTP.Address, ":"); of != "8080" || port.ContainerPort != 8080 {
		t.Errorf("want the port of http.address, %s, have %v", of, port.ContainerPort)
	}
	if p := service.Spec.Ports[0]; p.TargetPort.String() != port.Name || p.Name != port.Name {
		t.Errorf("want the port %s, have %+v", port.Name, p)
	}
	mounted := mounts(c)
	for _, v := range d.Spec.Template.Spec.Volumes {
		name := kustomization(t).ConfigMapGenerator[0].Name
		if v.ConfigMap != nil && v.ConfigMap.Name != name {
			t.Errorf("want the ConfigMap %s, have %s", name, v.ConfigMap.Name)
		}
		if mounted[v.Name] == "" {
			t.Errorf("want the volume %s mounted", v.Name)
		}
		delete(mounted, v.Name)
	}
	if len(mounted) > 0 {
		t.Errorf("want volumes for all mounts, have none for %v", mounted)
	}
}

// wantProbes wants a worker to answer what Kubernetes asks.
func wantProbes(t *testing.T, base string) {
	t.Helper()
	_, c := deployment(t)
	for name, probe := range map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != name || probe.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("want a probe of %s at the port %s, have %+v", name, c.Ports[0].Name, probe)
			continue
		}
		expect.Eventually(t, name, func() bool {
			request := expect.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, base+name, http.NoBody))(t)
			reply, err := http.DefaultClient.Do(request)
			if err != nil {
				return false
			}
			_ = reply.Body.Close()
			return reply.StatusCode == http.StatusOK
		})
	}
}
