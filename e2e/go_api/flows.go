package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// What an operator's program does without access control: jobs and their deployments, variables and their locks, host
// volumes, the event stream, commands in tasks, nodes, searches and the agent.
func flows(address string) report {
	told, c := report{}, client(address, "")
	events, end := subscribe(told, c)
	defer end()
	alloc := lifecycle(told, c)
	if alloc != nil {
		commands(told, c, alloc)
	}
	received(told, events)
	children(told, c)
	deployments(told, c)
	variables(told, c)
	volumes(told, c)
	nodes(told, c)
	searches(told, c)
	agents(told, c)
	ended(told, c)
	return told
}

// wait asks until the answer holds, and tells why it never does.
func wait(told report, step string, ask func() (bool, error)) bool {
	last := fmt.Errorf("it never held")
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		holds, err := ask()
		if err == nil && holds {
			told.add(step, nil)
			return true
		}
		if err != nil {
			last = err
		}
	}
	told.add(step, last)
	return false
}

func runningOf(c *api.Client, job string) ([]*api.AllocationListStub, error) {
	all, _, err := c.Jobs().Allocations(job, false, nil)
	var found []*api.AllocationListStub
	for _, each := range all {
		if each.ClientStatus == "running" && each.DesiredStatus == "run" {
			found = append(found, each)
		}
	}
	return found, err
}

func subscribe(told report, c *api.Client) (<-chan *api.Events, func()) {
	ctx, end := context.WithTimeout(context.Background(), 3*limit)
	topics := map[api.Topic][]string{api.TopicJob: {"flow"}, api.TopicAllocation: {"flow"}}
	events, err := c.EventStream().Stream(ctx, topics, 0, nil)
	told.add("subscribe", err)
	return events, end
}

func received(told report, events <-chan *api.Events) {
	hasJob, hasAlloc := false, false
	for end := time.After(limit); !hasJob || !hasAlloc; {
		select {
		case batch := <-events:
			if batch == nil || batch.Err != nil {
				told.add("events", fmt.Errorf("the stream ended: %v", batch))
				return
			}
			for _, event := range batch.Events {
				if job, err := event.Job(); event.Topic == api.TopicJob && err == nil {
					hasJob = hasJob || *job.ID == "flow" && event.Type == "JobRegistered"
				}
				if alloc, err := event.Allocation(); event.Topic == api.TopicAllocation && err == nil {
					hasAlloc = hasAlloc || alloc.JobID == "flow"
				}
			}
		case <-end:
			told.add("events", fmt.Errorf("job: %v, allocation: %v", hasJob, hasAlloc))
			return
		}
	}
	told.add("events", nil)
}

func flowJob() *api.Job {
	job := sleeper("flow")
	group := job.TaskGroups[0]
	group.Services = []*api.Service{{Name: "flow-web", Provider: "nomad", PortLabel: "8080"}}
	group.Scaling = &api.ScalingPolicy{Min: pointer(int64(1)), Max: pointer(int64(3))}
	job.Update = quickUpdate(0)
	return job
}

// quickUpdate rolls out by the states of tasks alone, in a second.
func quickUpdate(canaries int) *api.UpdateStrategy {
	return &api.UpdateStrategy{
		MaxParallel: pointer(1), Canary: pointer(canaries), HealthCheck: pointer("task_states"),
		MinHealthyTime: pointer(100 * time.Millisecond), HealthyDeadline: pointer(30 * time.Second),
		ProgressDeadline: pointer(60 * time.Second),
	}
}

// latest says whether the job's newest deployment has a status.
func latest(c *api.Client, job, status string) func() (bool, error) {
	return func() (bool, error) {
		found, _, err := c.Jobs().LatestDeployment(job, nil)
		return found != nil && found.Status == status, err
	}
}

func lifecycle(told report, c *api.Client) *api.Allocation {
	jobs, job := c.Jobs(), flowJob()
	checked, _, err := jobs.Validate(job, nil)
	told.check("validate", err, err == nil && checked.DriverConfigValidated && checked.Error == "")
	plan, _, err := jobs.Plan(job, true, nil)
	told.check("plan", err, err == nil && plan.Diff.Type == "Added" && plan.Annotations.DesiredTGUpdates["g"].Place == 1)
	first, _, err := jobs.Register(job, nil)
	told.check("register", err, err == nil && first.EvalID != "")
	wait(told, "first allocation", func() (bool, error) { found, err := runningOf(c, "flow"); return len(found) == 1, err })
	wait(told, "service", func() (bool, error) {
		found, _, err := c.Services().Get("flow-web", nil)
		return len(found) == 1 && found[0].Port == 8080, err
	})
	job.Meta = map[string]string{"round": "2"}
	_, _, err = jobs.EnforceRegister(job, 1, nil)
	told.check("stale register", nil, err != nil && strings.Contains(err.Error(), "job exists with conflicting job modify index"))
	_, _, err = jobs.EnforceRegister(job, first.JobModifyIndex, nil)
	told.add("second version", err)
	versions, diffs, _, err := jobs.Versions("flow", true, nil)
	told.check("versions", err, len(versions) == 2 && len(diffs) == 1 && *versions[0].Version == 1)
	_, err = jobs.TagVersion("flow", 1, "good", "d", nil)
	told.add("tag", err)
	tagged, _, err := jobs.VersionByTag("flow", "good", nil)
	told.check("version by tag", err, err == nil && *tagged.Version == 1)
	_, _, err = jobs.Revert("flow", 0, nil, nil, "", "")
	told.add("revert", err)
	_, _, err = jobs.Scale("flow", "g", pointer(2), "more", false, nil, nil)
	told.check("scale while a version rolls out", nil, err != nil && strings.Contains(err.Error(), "blocked due to active deployment"))
	wait(told, "reverted", latest(c, "flow", "successful"))
	_, _, err = jobs.Scale("flow", "g", pointer(2), "more", false, nil, nil)
	told.add("scale", err)
	_, _, err = jobs.Scale("flow", "g", pointer(9), "too many", false, nil, nil)
	told.check("scale above the maximum", nil, err != nil && strings.Contains(err.Error(), "greater than scaling policy maximum"))
	wait(told, "two allocations", func() (bool, error) { found, err := runningOf(c, "flow"); return len(found) == 2, err })
	status, _, err := jobs.ScaleStatus("flow", nil)
	told.check("scale status", err, err == nil && status.TaskGroups["g"].Desired == 2)
	summary, _, err := jobs.Summary("flow", nil)
	told.check("summary", err, err == nil && summary.Summary["g"].Running == 2)
	policies, _, err := c.Scaling().ListPolicies(nil)
	told.check("scaling policies", err, len(policies) == 1)
	evals, _, err := jobs.Evaluations("flow", nil)
	told.check("evaluations", err, len(evals) >= 4)
	list, _, err := jobs.List(&api.QueryOptions{Prefix: "fl", Filter: `Type == "service"`})
	told.check("list", err, len(list) == 1 && list[0].ID == "flow")
	found, err := runningOf(c, "flow")
	if err != nil || len(found) == 0 {
		return nil
	}
	alloc, _, err := c.Allocations().Info(found[0].ID, nil)
	told.check("allocation", err, err == nil && *alloc.Job.ID == "flow" && alloc.NodeName != "")
	return alloc
}

func commands(told report, c *api.Client, alloc *api.Allocation) {
	allocs := c.Allocations()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	script := []string{"/bin/sh", "-c", "cat; echo bad >&2; exit 3"}
	code, err := allocs.Exec(ctx, alloc, "main", false, script, strings.NewReader("given"), &out, &errs, nil, nil)
	told.check("exec", err, code == 3 && out.String() == "given" && errs.String() == "bad\n")
	_, err = allocs.Exec(ctx, alloc, "none", false, script, strings.NewReader(""), &out, &errs, nil, nil)
	told.check("exec in no task", nil, err != nil)
	told.add("logs", logs(c, alloc, nil))
	files, _, err := c.AllocFS().List(alloc, "/", nil)
	told.check("files", err, len(files) > 0)
	usage, err := allocs.Stats(alloc, nil)
	told.check("stats", err, err == nil && usage.ResourceUsage != nil)
	told.add("signal", allocs.Signal(alloc, nil, "main", "SIGCONT"))
	told.add("restart", allocs.Restart(alloc, "main", nil))
	wait(told, "restarted", func() (bool, error) {
		now, _, err := allocs.Info(alloc.ID, nil)
		return err == nil && now.TaskStates["main"].Restarts == 1 && now.TaskStates["main"].State == "running", err
	})
	told.add("pause", allocs.SetPauseState(alloc, nil, "main", "pause"))
	wait(told, "paused", func() (bool, error) {
		now, _, err := allocs.Info(alloc.ID, nil)
		return err == nil && now.TaskStates["main"].State == "pending", err
	})
	state, _, err := allocs.GetPauseState(alloc, nil, "main")
	told.check("pause state", err, state == "pause")
	told.add("resume", allocs.SetPauseState(alloc, nil, "main", "run"))
	wait(told, "resumed", func() (bool, error) {
		now, _, err := allocs.Info(alloc.ID, nil)
		return err == nil && now.TaskStates["main"].State == "running", err
	})
	stopped, err := allocs.Stop(alloc, nil)
	told.check("stop of an allocation", err, err == nil && stopped.EvalID != "")
	wait(told, "replacement", func() (bool, error) {
		found, err := runningOf(c, "flow")
		return len(found) == 2 && found[0].ID != alloc.ID && found[1].ID != alloc.ID, err
	})
}

func batch(name, script string) *api.Job {
	job := sleeper(name)
	job.Type = pointer("batch")
	job.TaskGroups[0].Tasks[0].SetConfig("args", []string{"-c", script})
	return job
}

func children(told report, c *api.Client) {
	job := batch("work", "cat ${NOMAD_TASK_DIR}/input")
	job.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "required", MetaRequired: []string{"who"}}
	job.TaskGroups[0].Tasks[0].DispatchPayload = &api.DispatchPayloadConfig{File: "input"}
	_, _, err := c.Jobs().Register(job, nil)
	told.add("parameterized job", err)
	_, _, err = c.Jobs().Dispatch("work", nil, []byte("x"), "", nil)
	told.check("dispatch without its meta", nil, err != nil && strings.Contains(err.Error(), "who"))
	child, _, err := c.Jobs().Dispatch("work", map[string]string{"who": "me"}, []byte("payload"), "", nil)
	told.add("dispatch", err)
	if err == nil {
		wait(told, "dispatched child", func() (bool, error) {
			found, _, err := c.Jobs().Info(child.DispatchedJobID, nil)
			return err == nil && *found.Status == "dead" && string(found.Payload) == "payload", err
		})
	}
	periodic := batch("nightly", "true")
	periodic.Periodic = &api.PeriodicConfig{Specs: []string{"0 3 * * *"}, SpecType: pointer("cron"), Enabled: pointer(true)}
	_, _, err = c.Jobs().Register(periodic, nil)
	told.add("periodic job", err)
	_, _, err = c.Jobs().PeriodicForce("nightly", nil)
	told.add("periodic force", err)
}

func deployments(told report, c *api.Client) {
	job := sleeper("rolled")
	job.Update = quickUpdate(1)
	_, _, err := c.Jobs().Register(job, nil)
	told.add("job with canaries", err)
	wait(told, "first deployment", latest(c, "rolled", "successful"))
	job.TaskGroups[0].Tasks[0].Env = map[string]string{"ROUND": "2"}
	_, _, err = c.Jobs().Register(job, nil)
	told.add("new version", err)
	var made *api.Deployment
	wait(told, "healthy canary", func() (bool, error) {
		made, _, err = c.Jobs().LatestDeployment("rolled", nil)
		return made != nil && made.JobVersion == 1 && made.TaskGroups["g"].HealthyAllocs == 1, err
	})
	if made == nil {
		return
	}
	_, _, err = c.Deployments().Pause(made.ID, true, nil)
	told.add("pause of a deployment", err)
	_, _, err = c.Deployments().Pause(made.ID, false, nil)
	told.add("resume of a deployment", err)
	allocs, _, err := c.Deployments().Allocations(made.ID, nil)
	told.check("allocations of a deployment", err, len(allocs) == 1)
	_, _, err = c.Deployments().PromoteAll(made.ID, nil)
	told.add("promote", err)
	wait(told, "promoted", latest(c, "rolled", "successful"))
	_, _, err = c.Deployments().Fail(made.ID, nil)
	told.check("fail of an ended deployment", nil, err != nil && strings.Contains(err.Error(), "can't fail terminal deployment"))
	list, _, err := c.Deployments().List(nil)
	told.check("deployments", err, len(list) >= 2)
}

func variables(told report, c *api.Client) {
	vars := c.Variables()
	made, _, err := vars.CheckedCreate(&api.Variable{Path: "app/config", Items: api.VariableItems{"a": "1"}}, nil)
	told.add("variable", err)
	if err != nil {
		return
	}
	var conflict api.ErrCASConflict
	_, _, err = vars.CheckedCreate(&api.Variable{Path: "app/config", Items: api.VariableItems{"a": "2"}}, nil)
	told.check("variable again", nil, errors.As(err, &conflict) && conflict.Conflict.ModifyIndex == made.ModifyIndex)
	made.Items["b"] = "2"
	updated, _, err := vars.CheckedUpdate(made, nil)
	told.check("variable update", err, err == nil && updated.ModifyIndex > made.ModifyIndex)
	items, _, err := vars.GetVariableItems("app/config", nil)
	told.check("variable items", err, len(items) == 2)
	list, _, err := vars.PrefixList("app/", nil)
	told.check("variables", err, len(list) == 1)
	none, _, err := vars.Peek("app/none", nil)
	told.check("variable that is not there", err, none == nil)
	locked, _, err := vars.AcquireLock(&api.Variable{Path: "app/lock", Lock: &api.VariableLock{TTL: "15s", LockDelay: "1s"}}, nil)
	told.check("lock", err, err == nil && locked.LockID() != "")
	if err == nil {
		_, _, err = vars.Update(&api.Variable{Path: "app/lock", Items: api.VariableItems{"a": "1"}}, nil)
		told.check("write of a locked variable", nil, err != nil)
		_, _, err = vars.RenewLock(locked, nil)
		told.add("renew of the lock", err)
		released, _, err := vars.ReleaseLock(locked, nil)
		told.check("release of the lock", err, err == nil && released.LockID() == "")
	}
	_, err = vars.Delete("app/config", nil)
	told.add("variable delete", err)
}

func volumes(told report, c *api.Client) {
	wanted := &api.HostVolume{
		Namespace: "default", Name: "data", PluginID: "mkdir",
		RequestedCapabilities: []*api.HostVolumeCapability{{AttachmentMode: "file-system", AccessMode: "single-node-writer"}},
	}
	made, _, err := c.HostVolumes().Create(&api.HostVolumeCreateRequest{Volume: wanted}, nil)
	told.add("host volume", err)
	if err != nil {
		return
	}
	wait(told, "host volume ready", func() (bool, error) {
		found, _, err := c.HostVolumes().Get(made.Volume.ID, nil)
		return err == nil && found.State == "ready" && found.HostPath != "", err
	})
	list, _, err := c.HostVolumes().List(&api.HostVolumeListRequest{}, nil)
	told.check("host volumes", err, len(list) == 1 && list[0].Name == "data")
	_, _, err = c.HostVolumes().Delete(&api.HostVolumeDeleteRequest{ID: made.Volume.ID}, nil)
	told.add("host volume delete", err)
	csi, _, err := c.CSIVolumes().List(nil)
	told.check("csi volumes", err, len(csi) == 0)
}

func nodes(told report, c *api.Client) {
	list, _, err := c.Nodes().List(nil)
	told.check("nodes", err, len(list) == 1)
	if len(list) != 1 {
		return
	}
	id := list[0].ID
	node, _, err := c.Nodes().Info(id, nil)
	told.check("node", err, err == nil && node.Status == "ready" && node.Attributes["kernel.name"] == "linux")
	stats, err := c.Nodes().Stats(id, nil)
	told.check("node stats", err, err == nil && len(stats.CPU) > 0 && stats.Memory.Total > 0)
	meta, err := c.Nodes().Meta().Apply(&api.NodeMetaApplyRequest{NodeID: id, Meta: map[string]*string{"rack": pointer("r1")}}, nil)
	told.check("node meta", err, err == nil && meta.Meta["rack"] == "r1")
	_, err = c.Nodes().ToggleEligibility(id, false, nil)
	told.add("ineligible", err)
	_, err = c.Nodes().ToggleEligibility(id, true, nil)
	told.add("eligible", err)
	allocs, _, err := c.Nodes().Allocations(id, nil)
	told.check("allocations of a node", err, len(allocs) > 2)
}

func searches(told report, c *api.Client) {
	found, _, err := c.Search().PrefixSearch("flo", contexts.Jobs, nil)
	told.check("search", err, err == nil && len(found.Matches[contexts.Jobs]) == 1)
	fuzzy, _, err := c.Search().FuzzySearch("flow", contexts.Jobs, nil)
	told.check("fuzzy search", err, err == nil && len(fuzzy.Matches[contexts.Jobs]) == 1 &&
		strings.Join(fuzzy.Matches[contexts.Services][0].Scope, "/") == "default/flow/g")
	policies, _, err := c.Search().PrefixSearch("", contexts.ScalingPolicies, nil)
	told.check("search of scaling policies", err, err == nil && len(policies.Matches[contexts.ScalingPolicies]) == 1)
}

func agents(told report, c *api.Client) {
	name, err := c.Agent().NodeName()
	told.check("agent name", err, name != "")
	region, err := c.Agent().Region()
	told.check("agent region", err, region == "global")
	members, err := c.Agent().Members()
	told.check("members", err, err == nil && len(members.Members) == 1)
	health, err := c.Agent().Health()
	told.check("health", err, err == nil && health.Server.Ok && health.Client.Ok)
	set, err := c.Agent().SetSchedulerWorkerConfig(
		api.SchedulerWorkerPoolArgs{NumSchedulers: 2, EnabledSchedulers: []string{"service", "batch"}}, nil)
	told.check("scheduler workers", err, err == nil && set.NumSchedulers == 2 && len(set.EnabledSchedulers) == 2)
	workers, err := c.Agent().GetSchedulerWorkersInfo(nil)
	told.check("scheduler workers info", err, err == nil && len(workers.Schedulers) == 2)
	leader, err := c.Status().Leader()
	told.check("leader", err, leader != "")
}

func ended(told report, c *api.Client) {
	_, _, err := c.Jobs().Deregister("flow", true, nil)
	told.add("purge", err)
	_, _, err = c.Jobs().Info("flow", nil)
	told.check("purged job", nil, err != nil && strings.Contains(err.Error(), "404"))
	told.add("system gc", c.System().GarbageCollect())
}
