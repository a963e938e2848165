"""Where assignments are exchanged."""

import os

c = get_config()
c.CourseDirectory.course_id = "transformer"
c.Exchange.root = os.environ.get("EXCHANGE", "/srv/nbgrader/exchange")
