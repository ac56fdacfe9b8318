// A client of the HTTP API that HashiCorp's Go package makes. It goes through access control as a new cluster's operator
// and a developer do, and prints what each step came to: "ok", or the error's text.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	team      = "team"
	rules     = `namespace "team" { policy = "write" }`
	readRules = `namespace "team" { policy = "read" }`
	limit     = 60 * time.Second
)

type report map[string]string

func (r report) add(step string, err error) {
	if err == nil {
		r[step] = "ok"
	} else {
		r[step] = err.Error()
	}
}

func (r report) check(step string, err error, holds bool) {
	if err == nil && !holds {
		err = fmt.Errorf("unexpected answer")
	}
	r.add(step, err)
}

func client(address, secret string) *api.Client {
	config := api.DefaultConfig()
	config.Address = address
	config.SecretID = secret
	made, err := api.NewClient(config)
	if err != nil {
		panic(err)
	}
	return made
}

func sleeper(name string) *api.Job {
	job := api.NewServiceJob(name, name, "global", 50)
	task := api.NewTask("main", "raw_exec")
	task.SetConfig("command", "/bin/sh")
	task.SetConfig("args", []string{"-c", "echo started; sleep 1000"})
	task.Require(&api.Resources{CPU: pointer(10), MemoryMB: pointer(10)})
	return job.AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
}

func pointer[T any](value T) *T { return &value }

func main() {
	address, told := os.Args[1], report{}
	if len(os.Args) > 2 && os.Args[2] == "flows" {
		tell(flows(address))
		return
	}
	anonymous := client(address, "")
	_, _, err := anonymous.Jobs().List(nil)
	told.add("list without a token", err)
	root := bootstrap(told, address, anonymous)
	objects(told, root)
	developer, reader, accessor := tokens(told, address, root)
	alloc := jobs(told, root, developer, reader)
	tasks(told, developer, reader, alloc)
	oneTime(told, anonymous, root)
	login(told, address, root, anonymous)
	revocation(told, root, reader, accessor)
	tell(told)
}

func tell(told report) {
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		panic(err)
	}
}

func bootstrap(told report, address string, anonymous *api.Client) *api.Client {
	made, _, err := anonymous.ACLTokens().Bootstrap(nil)
	told.add("bootstrap", err)
	if err != nil {
		panic(err)
	}
	_, _, err = anonymous.ACLTokens().Bootstrap(nil)
	told.add("bootstrap again", err)
	root := client(address, made.SecretID)
	self, _, err := root.ACLTokens().Self(nil)
	told.check("self", err, err == nil && self.AccessorID == made.AccessorID && self.Type == "management")
	return root
}

func objects(told report, root *api.Client) {
	_, err := root.Namespaces().Register(&api.Namespace{Name: team}, nil)
	told.add("namespace", err)
	_, err = root.ACLPolicies().Upsert(&api.ACLPolicy{Name: "dev", Description: "d", Rules: rules}, nil)
	told.add("policy", err)
	_, err = root.ACLPolicies().Upsert(&api.ACLPolicy{Name: "reader", Rules: readRules}, nil)
	told.add("second policy", err)
	_, err = root.ACLPolicies().Upsert(&api.ACLPolicy{Name: "bad", Rules: `namespace "x" { policy = "rite" }`}, nil)
	told.add("wrong policy", err)
	policy, _, err := root.ACLPolicies().Info("dev", nil)
	told.check("policy info", err, err == nil && policy.Rules == rules && policy.Description == "d")
	policies, _, err := root.ACLPolicies().List(nil)
	told.check("policy list", err, len(policies) == 2)
	role, _, err := root.ACLRoles().Create(
		&api.ACLRole{Name: "devs", Policies: []*api.ACLRolePolicyLink{{Name: "dev"}}}, nil)
	told.add("role", err)
	if err == nil {
		found, _, err := root.ACLRoles().GetByName("devs", nil)
		told.check("role by name", err, err == nil && found.ID == role.ID)
	}
}

func tokens(told report, address string, root *api.Client) (*api.Client, *api.Client, string) {
	developer, _, err := root.ACLTokens().Create(
		&api.ACLToken{Name: "dev", Type: "client", Roles: []*api.ACLTokenRoleLink{{Name: "devs"}}}, nil)
	told.check("token with a role", err, err == nil && developer.Roles[0].Name == "devs")
	reader, _, err := root.ACLTokens().Create(
		&api.ACLToken{Name: "reader", Type: "client", Policies: []string{"reader"}, ExpirationTTL: time.Hour}, nil)
	told.check("token that expires", err, err == nil && reader.ExpirationTime != nil)
	_, _, err = root.ACLTokens().Create(&api.ACLToken{Name: "none", Type: "client"}, nil)
	told.add("token without rights", err)
	list, _, err := root.ACLTokens().List(nil)
	told.check("token list", err, len(list) == 3)
	reader.Name = "renamed"
	updated, _, err := root.ACLTokens().Update(reader, nil)
	told.check("token update", err, err == nil && updated.Name == "renamed")
	_, _, err = client(address, reader.SecretID).ACLTokens().List(nil)
	told.add("token list by a reader", err)
	return client(address, developer.SecretID), client(address, reader.SecretID), reader.AccessorID
}

func jobs(told report, root, developer, reader *api.Client) string {
	write, read := &api.WriteOptions{Namespace: team}, &api.QueryOptions{Namespace: team}
	_, _, err := developer.Jobs().Register(sleeper("web"), write)
	told.add("register", err)
	_, _, err = developer.Jobs().Register(sleeper("web"), &api.WriteOptions{Namespace: "default"})
	told.add("register elsewhere", err)
	_, _, err = reader.Jobs().Register(sleeper("other"), write)
	told.add("register by a reader", err)
	_, _, err = reader.Jobs().Info("web", read)
	told.add("info by a reader", err)
	_, _, err = reader.Jobs().Deregister("web", false, write)
	told.add("stop by a reader", err)
	_, _, err = root.Jobs().Register(sleeper("hidden"), nil)
	told.add("register by the operator", err)
	list, meta, err := developer.Jobs().List(&api.QueryOptions{Namespace: "*"})
	told.check("list of all namespaces", err, len(list) == 1 && list[0].ID == "web")
	if err == nil {
		_, _, err = developer.Jobs().List(&api.QueryOptions{Namespace: team, WaitIndex: meta.LastIndex - 1, WaitTime: time.Second})
	}
	told.add("blocking query", err)
	_, _, err = developer.Nodes().List(nil)
	told.add("nodes by a developer", err)
	return running(told, developer, read)
}

func running(told report, developer *api.Client, read *api.QueryOptions) string {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		allocs, _, err := developer.Jobs().Allocations("web", false, read)
		if err != nil {
			told.add("allocations", err)
			return ""
		}
		if len(allocs) == 1 && allocs[0].ClientStatus == "running" {
			told.add("allocations", nil)
			return allocs[0].ID
		}
	}
	told.add("allocations", fmt.Errorf("no running allocation"))
	return ""
}

func tasks(told report, developer, reader *api.Client, id string) {
	read := &api.QueryOptions{Namespace: team}
	alloc, _, err := developer.Allocations().Info(id, read)
	told.add("allocation", err)
	if err != nil {
		return
	}
	told.add("logs", logs(developer, alloc, read))
	told.add("logs by a reader", logs(reader, alloc, read))
	_, _, err = reader.AllocFS().List(alloc, "/", read)
	told.add("files by a reader", err)
	told.add("exec without alloc-node-exec", execute(developer, alloc, read))
	_, err = reader.Allocations().Stop(alloc, read)
	told.add("stop of an allocation by a reader", err)
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	events, err := developer.EventStream().Stream(context, map[api.Topic][]string{api.TopicJob: {"*"}}, 1, read)
	if err == nil {
		frame := <-events
		err = frame.Err
	}
	told.add("event stream", err)
	told.add("event stream of nodes", streamError(context, developer, read))
}

func streamError(context context.Context, developer *api.Client, read *api.QueryOptions) error {
	events, err := developer.EventStream().Stream(context, map[api.Topic][]string{api.TopicNode: {"*"}}, 1, read)
	if err != nil {
		return err
	}
	return (<-events).Err
}

func logs(from *api.Client, alloc *api.Allocation, read *api.QueryOptions) error {
	cancel := make(chan struct{})
	defer close(cancel)
	frames, failures := from.AllocFS().Logs(alloc, false, "main", "stdout", "start", 0, cancel, read)
	var text bytes.Buffer
	for {
		select {
		case err := <-failures:
			if err == io.EOF {
				return nil
			}
			return err
		case frame, open := <-frames:
			if !open {
				if !strings.Contains(text.String(), "started") {
					return fmt.Errorf("log holds %q", text.String())
				}
				return nil
			}
			text.Write(frame.Data)
		case <-time.After(limit):
			return fmt.Errorf("no end of the log")
		}
	}
}

func execute(by *api.Client, alloc *api.Allocation, read *api.QueryOptions) error {
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errors bytes.Buffer
	code, err := by.Allocations().Exec(context, alloc, "main", false, []string{"/bin/echo", "ran"},
		strings.NewReader(""), &out, &errors, nil, read)
	if err == nil && (code != 0 || out.String() != "ran\n") {
		err = fmt.Errorf("exit code %d, output %q", code, out.String())
	}
	return err
}

func oneTime(told report, anonymous, root *api.Client) {
	once, _, err := root.ACLTokens().UpsertOneTimeToken(nil)
	told.add("one-time token", err)
	if err != nil {
		return
	}
	token, _, err := anonymous.ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	told.check("one-time exchange", err, err == nil && token.Type == "management" && token.SecretID != "")
	_, _, err = anonymous.ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	told.add("one-time exchange again", err)
}

func revocation(told report, root, reader *api.Client, accessor string) {
	_, err := root.ACLTokens().Delete(accessor, nil)
	told.add("revoke", err)
	_, _, err = reader.Jobs().List(&api.QueryOptions{Namespace: team})
	told.add("list with a revoked token", err)
}
