"""workflow.py - the eigenvalue workflow of examples/eigen, driven over the API: many small jobs and one that gathers."""
import json
import subprocess
import uuid

from centre import EXAMPLES, wait_for

FINAL = ("JOB_FINISHED", "FAILED")


class Eigen:
    def __init__(self, site, frames=20, order=40):
        self.site, self.centre, self.frames = site, site.centre, frames
        self.tag = f"eigen-{uuid.uuid4().hex[:8]}"
        self.folder = site.beamline / self.tag
        subprocess.run([EXAMPLES / "eigen-generate", self.folder, str(frames), str(order)], check=True)
        (self.folder / "results").mkdir()
        self.eigen, self.gather = site.example("eigen", "eigen"), site.example("eigen", "gather")

    def submit(self):
        jobs = []
        for i in range(1, self.frames + 1):
            frame = f"frame-{i:04d}"
            jobs.append({"app_id": self.eigen, "workdir": f"{self.tag}/{frame}", "tags": {"workflow": self.tag}, "node_packing_count": 8,
                         "transfers": {"matrix": {"location_alias": "beamline", "path": f"/{self.tag}/frames/{frame}.bin"},
                                       "eigenvalues": {"location_alias": "beamline", "path": f"/{self.tag}/results/{frame}.txt"}}})
        self.ids = [j["id"] for j in self.centre.post("/jobs/", jobs)]
        last = self.centre.post("/jobs/", [{
            "app_id": self.gather, "workdir": f"{self.tag}/gather", "tags": {"workflow": self.tag}, "parent_ids": self.ids,
            "transfers": {slot: {"location_alias": "beamline", "path": f"/{self.tag}/{path}"}
                          for slot, path in (("results", "results"), ("truth", "truth"), ("report", "report.json"))}}])
        self.ids.append(last[0]["id"])

    def states(self):
        return self.centre.states(f"?tags=workflow:{self.tag}")

    def wait_until(self, condition, deadline=120):
        return wait_for(lambda: condition(self.states()), deadline, f"workflow {self.tag}", every=0.2)

    def wait(self, deadline=240):
        """All finished, the result right, and each job finished exactly once in the records."""
        def done():
            states = self.states()
            assert states.get("FAILED", 0) == 0, self.failures()
            return states.get("JOB_FINISHED", 0) == self.frames + 1
        wait_for(done, deadline, f"workflow {self.tag}", every=0.3)
        report = json.loads((self.folder / "report.json").read_text())
        assert report["correct"] is True and report["frames"] == self.frames, report
        finished = self.centre.get(f"/events/?to_state=JOB_FINISHED&tags=workflow:{self.tag}")
        assert sorted(e["job_id"] for e in finished["results"]) == sorted(self.ids)
        return report

    def failures(self):
        return [e for e in self.centre.get(f"/events/?to_state=FAILED&tags=workflow:{self.tag}")["results"]]
