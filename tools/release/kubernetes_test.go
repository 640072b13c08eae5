package release

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

type manifests struct {
	services  []*core.Service
	budgets   []*policy.PodDisruptionBudget
	workloads []workload
}

type workload struct {
	name     string
	selector *meta.LabelSelector
	pods     core.PodTemplateSpec
	claims   []core.PersistentVolumeClaim
}

// readManifests decodes a file as the API server does. An unknown or repeated field fails the test.
func readManifests(t *testing.T, file string) *manifests {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := new(manifests)
	for _, document := range strings.Split(string(text), "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		decode := func(object any) {
			t.Helper()
			if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
				t.Errorf("decode the %[2]s in %[1]s: %[3]v", file, kind.Kind, err)
			}
		}
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Service":
			s := new(core.Service)
			decode(s)
			all.services = append(all.services, s)
		case "policy/v1 PodDisruptionBudget":
			b := new(policy.PodDisruptionBudget)
			decode(b)
			all.budgets = append(all.budgets, b)
		case "apps/v1 StatefulSet":
			s := new(apps.StatefulSet)
			decode(s)
			all.workloads = append(all.workloads, workload{s.Name, s.Spec.Selector, s.Spec.Template, s.Spec.VolumeClaimTemplates})
		case "apps/v1 Deployment":
			d := new(apps.Deployment)
			decode(d)
			all.workloads = append(all.workloads, workload{d.Name, d.Spec.Selector, d.Spec.Template, nil})
		default:
			t.Errorf("%s has an object of an unexpected kind: %s %s", file, kind.APIVersion, kind.Kind)
		}
	}
	return all
}

func TestManifestsAreValidAndTheirObjectsFitTogether(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("deploy/kubernetes has the files %q, %v, want three", files, err)
	}
	for _, file := range files {
		m := readManifests(t, file)
		if len(m.workloads) != 1 || len(m.services) == 0 {
			t.Fatalf("%s has %d workloads and %d services, want one workload with services", file, len(m.workloads), len(m.services))
		}
		w := m.workloads[0]
		pods := labels.Set(w.pods.Labels)
		selects := func(what string, selector *meta.LabelSelector) {
			t.Helper()
			if s, err := meta.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(pods) {
				t.Errorf("%s: the selector of the %s does not match the pods: %v", file, what, err)
			}
		}
		selects("workload", w.selector)
		for _, b := range m.budgets {
			selects("disruption budget", b.Spec.Selector)
		}
		for _, c := range w.pods.Spec.TopologySpreadConstraints {
			selects("topology constraint", c.LabelSelector)
		}
		for _, s := range m.services {
			selects("service", &meta.LabelSelector{MatchLabels: s.Spec.Selector})
			checkContainer(t, file, w, s)
		}
	}
}

func TestManifestsNameTheNewestVersion(t *testing.T) {
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindSubmatch(changes)
	if newest == nil {
		t.Fatal("the changelog has no version")
	}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		image := readManifests(t, file).workloads[0].pods.Spec.Containers[0].Image
		if !strings.HasSuffix(image, ":"+string(newest[1])) {
			t.Errorf("%s has the image %s, want the version %s", file, image, newest[1])
		}
	}
}

// checkContainer checks that the container, its pod and the service agree on ports and volumes. It
// also checks that the pod runs as the image's user.
func checkContainer(t *testing.T, file string, w workload, service *core.Service) {
	t.Helper()
	c := w.pods.Spec.Containers[0]
	ports := make(map[string]int32)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.StrVal] != p.Port {
			t.Errorf("%s: the port %s of the service is not a port of the container", file, p.Name)
		}
	}
	for name, probe := range map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || ports[probe.HTTPGet.Port.StrVal] == 0 {
			t.Errorf("%s: the %s probe does not name a port of the container", file, name)
		}
	}
	volumes := make(map[string]bool)
	for _, v := range w.pods.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range w.claims {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: nothing provides the volume %s", file, m.Name)
		}
	}
	const user = 65532 // of the image; the number is both user and group
	security := w.pods.Spec.SecurityContext
	if id := security.RunAsUser; id == nil || *id != user {
		t.Errorf("%s: the pods do not run as the image's user", file)
	}
	// Without fsGroup, the image's user can neither read secrets nor write to a new volume.
	if id := security.FSGroup; id == nil || *id != user {
		t.Errorf("%s: the image's user cannot read secrets", file)
	}
}
